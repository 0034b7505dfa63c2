// collectives.Communicator and its Request for Python, without torch.distributed: C functions of the METH_FASTCALL kind
// on plain heap types, because one pybind11 call would cost more than a small collective.
// Included by module.cc (bind_communicator) and by whatever needs the node (process_node).
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "base/status.h"
#include "engine/communicator.h"
#include "transport/node.h"

namespace collectives {

/// Adds the types Communicator and Request and the functions create_communicator, empty and node_info to the module.
void bind_communicator(pybind11::module_& module);

/// Adds the torch backend to the module (c10d_backend.cc).
void bind_c10d(pybind11::module_& module);

/// The node of this process, configured by the environment (collectives.config). The first call makes it and has Python's
/// exit shut it down; later calls cost two loads. Any thread, with or without the GIL. Errors: closed (a child made by
/// fork), invalid_argument (a variable does not parse), internal (the system refuses memory or sockets).
Status process_node(Node** out);

/// A new collectives.Communicator object around `communicator`. `bootstrap` may be null; it is kept as long as the
/// object or one split from it lives. Needs the GIL; null with a Python error.
PyObject* wrap_communicator(std::shared_ptr<Communicator> communicator, std::shared_ptr<Bootstrap> bootstrap,
                            PyTypeObject* type);

} // namespace collectives
