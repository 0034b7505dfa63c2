// Arguments of the hot Python methods, parsed by hand from the METH_FASTCALL convention: no tuple, no dictionary, no
// std::string, nothing allocated on the way of a small call. Included by the other bindings only; everything needs the
// GIL, and false or null means that a Python error is set.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "algorithms/call.h"

namespace collectives {

/// The parameters of one method, in order: `required` of them must be given, and all but `keyword_only` of them may be
/// given by position.
struct Signature {
    static constexpr int kMaxParameters = 8;

    const char* method;
    int required;
    int count;
    const char* names[kMaxParameters];
    PyObject* interned[kMaxParameters] = {}; // the names as Python's own strings; filled by intern()

    bool intern();

    /// Sorts the arguments of a call into `values` (borrowed; null where not given, or None where None was).
    bool parse(PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords, PyObject** values) const;
};

/// True when the argument was not given or is None.
inline bool absent(const PyObject* value) { return value == nullptr || value == Py_None; }

/// "sum", "avg", ... or ("premul_sum", factor), into the call. `value` may be absent: sum.
bool parse_op(PyObject* value, Call* call);

/// Seconds (a number of at least 0, or inf) -> nanoseconds; absent: -1, the communicator's own.
bool parse_timeout(PyObject* value, int64_t* timeout_ns);

/// An integer within [low, high].
bool parse_integer(PyObject* value, const char* name, int64_t low, int64_t high, int64_t* out);

/// True or False; absent: false.
bool parse_flag(PyObject* value, const char* name, bool* out);

/// A sequence of `length` integers, none negative, times `scale`, appended to `out`. Their own sum must be `total`.
/// `what` says in words what `total` counts ("rows of array").
bool parse_counts(PyObject* value, const char* name, int64_t length, int64_t scale, int64_t total, const char* what,
                  std::vector<int64_t>* out);

} // namespace collectives
