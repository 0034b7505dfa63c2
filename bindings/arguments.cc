// Parsing of METH_FASTCALL arguments. See arguments.h.
#include "bindings/arguments.h"

#include <cmath>
#include <limits>

#include "base/clock.h"

namespace collectives {
namespace {

/// The parameter that a keyword names; -1 when there is none. Names written in a call are interned, so that comparing
/// addresses finds them; the second loop is for names made at run time (**kwargs).
int find_parameter(const Signature& signature, PyObject* keyword) {
    for (int i = 0; i < signature.count; ++i)
        if (signature.interned[i] == keyword)
            return i;
    for (int i = 0; i < signature.count; ++i)
        if (PyUnicode_CompareWithASCIIString(keyword, signature.names[i]) == 0)
            return i;
    return -1;
}

bool refuse_missing(const Signature& signature, int missing) {
    PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", signature.method, signature.names[missing]);
    return false;
}

bool parse_keywords(const Signature& signature, PyObject* const* given, PyObject* keywords, PyObject** values) {
    const Py_ssize_t count = PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t k = 0; k < count; ++k) {
        PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
        const int i = find_parameter(signature, keyword);
        if (i < 0) {
            PyErr_Format(PyExc_TypeError, "%s() takes no argument '%U'", signature.method, keyword);
            return false;
        }
        if (values[i] != nullptr) {
            PyErr_Format(PyExc_TypeError, "%s() got the argument '%s' twice", signature.method, signature.names[i]);
            return false;
        }
        values[i] = given[k];
    }
    return true;
}

bool refuse_op(PyObject* value) {
    Py_ssize_t length = 0;
    const char* name = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : "";
    if (name == nullptr)
        return false;
    PyErr_Format(PyExc_ValueError, "op: %R is no reduce operation. %s", value,
                 why_unknown_reduce_op({name, static_cast<size_t>(length)}).c_str());
    return false;
}

/// ("premul_sum", factor), factor a real or complex number.
bool parse_premul_sum(PyObject* value, Call* call) {
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2)
        return refuse_op(value);
    PyObject* name = PyTuple_GET_ITEM(value, 0);
    if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "premul_sum") != 0)
        return refuse_op(value);
    const Py_complex factor = PyComplex_AsCComplex(PyTuple_GET_ITEM(value, 1));
    if (PyErr_Occurred() != nullptr) {
        PyErr_Format(PyExc_TypeError, "op: the factor of premul_sum must be a number, got %R",
                     PyTuple_GET_ITEM(value, 1));
        return false;
    }
    call->op = ReduceOp::premul_sum;
    call->factor_re = factor.real;
    call->factor_im = factor.imag;
    return true;
}

} // namespace

bool Signature::intern() {
    for (int i = 0; i < count; ++i) {
        if (interned[i] == nullptr)
            interned[i] = PyUnicode_InternFromString(names[i]);
        if (interned[i] == nullptr)
            return false;
    }
    return true;
}

bool Signature::parse(PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords, PyObject** values) const {
    if (positional > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments, got %zd", method, count, positional);
        return false;
    }
    for (Py_ssize_t i = 0; i < positional; ++i) values[i] = arguments[i];
    for (Py_ssize_t i = positional; i < count; ++i) values[i] = nullptr;
    if (keywords != nullptr && !parse_keywords(*this, arguments + positional, keywords, values))
        return false;
    for (int i = 0; i < required; ++i)
        if (values[i] == nullptr)
            return refuse_missing(*this, i);
    return true;
}

bool parse_op(PyObject* value, Call* call) {
    if (absent(value)) {
        call->op = ReduceOp::sum;
        return true;
    }
    if (!PyUnicode_Check(value))
        return parse_premul_sum(value, call);
    Py_ssize_t length = 0;
    const char* name = PyUnicode_AsUTF8AndSize(value, &length);
    if (name == nullptr)
        return false;
    const auto op = reduce_op_from_name({name, static_cast<size_t>(length)});
    if (!op || *op == ReduceOp::premul_sum)
        return refuse_op(value);
    call->op = *op;
    return true;
}

bool parse_timeout(PyObject* value, int64_t* timeout_ns) {
    *timeout_ns = -1;
    if (absent(value))
        return true;
    const double seconds = PyFloat_AsDouble(value);
    if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
        PyErr_Format(PyExc_TypeError, "timeout: expected seconds as a number or None, got %R", value);
        return false;
    }
    if (std::isnan(seconds) || seconds < 0) {
        PyErr_Format(PyExc_ValueError, "timeout: must be at least 0 seconds, got %R", value);
        return false;
    }
    constexpr double kLongest = 9e9; // seconds: beyond it nanoseconds no longer fit
    *timeout_ns = seconds >= kLongest ? kForever : static_cast<int64_t>(seconds * static_cast<double>(kSecond));
    return true;
}

bool parse_integer(PyObject* value, const char* name, int64_t low, int64_t high, int64_t* out) {
    PyObject* index = PyNumber_Index(value);
    if (index == nullptr) {
        PyErr_Format(PyExc_TypeError, "%s: expected an integer, got %R", name, value);
        return false;
    }
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (overflow != 0 || *out < low || *out > high) {
        PyErr_Format(PyExc_ValueError, "%s: must be from %lld to %lld, got %R", name, static_cast<long long>(low),
                     static_cast<long long>(high), value);
        return false;
    }
    return true;
}

bool parse_flag(PyObject* value, const char* name, bool* out) {
    *out = value == Py_True;
    if (value == Py_True || value == Py_False || absent(value))
        return true;
    PyErr_Format(PyExc_TypeError, "%s: expected True or False, got %R", name, value);
    return false;
}

bool parse_counts(PyObject* value, const char* name, int64_t length, int64_t scale, int64_t total, const char* what,
                  std::vector<int64_t>* out) {
    PyObject* sequence = PySequence_Fast(value, "");
    if (sequence == nullptr) {
        PyErr_Format(PyExc_TypeError, "%s: expected a sequence of integers, got %s", name, Py_TYPE(value)->tp_name);
        return false;
    }
    const Py_ssize_t given = PySequence_Fast_GET_SIZE(sequence);
    bool fine = given == length;
    if (!fine)
        PyErr_Format(PyExc_ValueError, "%s: must have one entry a rank (%lld), got %zd", name,
                     static_cast<long long>(length), given);
    int64_t sum = 0;
    for (Py_ssize_t i = 0; fine && i < given; ++i) {
        int64_t entry = 0;
        fine = parse_integer(PySequence_Fast_GET_ITEM(sequence, i), name, 0,
                             std::numeric_limits<int64_t>::max() / (scale > 0 ? scale : 1) / 2, &entry);
        if (fine && __builtin_add_overflow(sum, entry, &sum)) {
            PyErr_Format(PyExc_ValueError, "%s: the entries add up to more than any array holds", name);
            fine = false;
        }
        out->push_back(entry * scale);
    }
    Py_DECREF(sequence);
    if (fine && sum != total) {
        PyErr_Format(PyExc_ValueError, "%s: the entries add up to %lld, but there are %lld %s", name,
                     static_cast<long long>(sum), static_cast<long long>(total), what);
        fine = false;
    }
    return fine;
}

} // namespace collectives
