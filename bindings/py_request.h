// collectives.Request for Python: an operation under way, with the arrays that it works on.
// Included by the files of the Communicator only. Everything needs the GIL.
#pragma once

#include <Python.h>

#include "engine/request.h"

namespace collectives {

/// Adds the type Request to the module. False with a Python error.
bool add_request_type(PyObject* module);

/// A Request object. `keep` is a tuple of the arrays that the core reads and writes until the operation ends (stolen);
/// `result` is what wait() returns (borrowed), or null for the source rank of a received message.
/// `outputs`: how many of the tuple's first entries are written to.
PyObject* wrap_request(RequestPtr request, PyObject* keep, PyObject* result, int outputs);

/// The same, for what a method with async_op=True returns: an error of the arguments is raised here and now.
PyObject* hand_out(RequestPtr request, PyObject* keep, PyObject* result, int outputs);

/// Waits for a request without the GIL. False with the Python error of its failure.
bool wait_for(Request& request, int64_t timeout_ns);

/// Lets go of the arrays of requests that were dropped while running and have ended since: looks at a few, or at all.
void sweep_dropped_requests(bool all = false);

} // namespace collectives
