// The Python object behind collectives.Communicator, shared by the two files that implement its methods
// (communicator.cc, communicator_calls.cc) and included by no other.
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "engine/communicator.h"

namespace collectives {

struct PyCommunicator {
    PyObject_HEAD
    std::shared_ptr<Communicator> communicator; // never null
    std::shared_ptr<Bootstrap> bootstrap;       // may be null; outlives the communicator
    PyObject* weak_references;
    int rank;
    int world_size;
    int64_t timeout_ns; // of operations that give none, as Python set it last
    unsigned children; // splits and shrinks so far, the same on all ranks: part of their names
};

inline PyCommunicator* communicator_of(PyObject* object) { return reinterpret_cast<PyCommunicator*>(object); }

using FastMethod = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

/// A METH_FASTCALL | METH_KEYWORDS function out of a signature and a body that gets the sorted arguments.
template <Signature& signature, PyObject* (*body)(PyCommunicator*, PyObject**)>
PyObject* fast_method(PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords) {
    PyObject* values[Signature::kMaxParameters];
    if (!signature.parse(arguments, positional, keywords, values)) [[unlikely]] return nullptr;
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

/// Interns the parameter names of the collective and message methods. False with a Python error.
bool intern_call_signatures();

/// Appends the collective and message methods (all_reduce ... recv) to a table of methods.
void add_call_methods(std::vector<PyMethodDef>* table);

} // namespace collectives
