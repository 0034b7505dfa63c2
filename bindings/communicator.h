// collectives.Communicator and its Request for Python, without torch.distributed: C functions of the METH_FASTCALL kind
// on plain heap types, because one pybind11 call would cost more than a small collective.
// Included by module.cc (bind_communicator) and by c10d_backend.cc (process_node).
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "base/status.h"
#include "engine/communicator.h"
#include "transport/node.h"

namespace collectives {

/// Adds the types Communicator and Request and the functions empty, process_info, ... to the module.
void bind_communicator(pybind11::module_& module);

/// Adds the torch backend to the module (c10d_backend.cc).
void bind_c10d(pybind11::module_& module);

/// The node of this process. The first call makes it, with what configure_node() gave (else the defaults of
/// NodeConfig); from then on Python's exit shuts it down. Any thread, with or without the GIL.
Status process_node(Node** out);

/// Sets the configuration of a node that is yet to be made. invalid_argument when it was made already.
Status configure_node(const NodeConfig& config);

/// A new collectives.Communicator object around `communicator`. `bootstrap` may be null; it is kept as long as the
/// object or one split from it lives. Needs the GIL; null with a Python error.
PyObject* wrap_communicator(std::shared_ptr<Communicator> communicator, std::shared_ptr<Bootstrap> bootstrap,
                            PyTypeObject* type);

} // namespace collectives
