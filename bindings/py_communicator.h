// The Python object behind collectives.Communicator, shared by the files that implement its methods
// (communicator.cc, communicator_calls.cc, communicator_messages.cc) and included by no other.
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "engine/communicator.h"

namespace collectives {

struct PyCommunicator {
    PyObject_HEAD std::shared_ptr<Communicator> communicator; // never null
    std::shared_ptr<Bootstrap> bootstrap;                     // may be null; outlives the communicator
    PyObject* weak_references;
    int rank;
    int world_size;
    int64_t timeout_ns; // of operations that give none, as Python set it last
    unsigned children;  // splits and shrinks so far, the same on all ranks: part of their names
};

inline PyCommunicator* communicator_of(PyObject* object) { return reinterpret_cast<PyCommunicator*>(object); }

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

/// A METH_FASTCALL | METH_KEYWORDS function out of a signature and a body that gets the sorted arguments.
template <Signature& signature, PyObject* (*body)(PyCommunicator*, PyObject**)>
PyObject* fast_method(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords) {
    PyObject* values[Signature::kMaxParameters];
    if (!signature.parse(arguments, positional, keywords, values)) [[unlikely]]
        return nullptr;
    try {
        return body(communicator_of(self), values);
    } catch (...) {
        return set_current_exception();
    }
}

inline PyMethodDef method_row(const char* name, FastMethod function, const char* doc) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL | METH_KEYWORDS,
            doc};
}

/// One method in the table of its file.
struct MethodRow {
    Signature* signature;
    FastMethod function;
    const char* doc;
};

template <size_t n> bool intern_all(const MethodRow (&rows)[n]) {
    for (const MethodRow& row : rows)
        if (!row.signature->intern())
            return false;
    return true;
}

/// The documentation of a method, and of its `timeout` where it takes one. Lives as long as the type.
const char* documentation_of(const MethodRow& row);

template <size_t n> void append_all(const MethodRow (&rows)[n], std::vector<PyMethodDef>* table) {
    for (const MethodRow& row : rows)
        table->push_back(method_row(row.signature->method, row.function, documentation_of(row)));
}

/// all_reduce ... barrier (communicator_calls.cc) and send, recv (communicator_messages.cc): their parameter names,
/// interned (false with a Python error), and their rows for the type's table.
bool intern_call_signatures();
bool intern_message_signatures();
void add_call_methods(std::vector<PyMethodDef>* table);
void add_message_methods(std::vector<PyMethodDef>* table);

} // namespace collectives
