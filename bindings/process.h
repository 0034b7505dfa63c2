// What Python may ask about this process: shared memory, versions, tables. Included by module.cc only; the node itself is
// declared in communicator.h.
#pragma once

#include <pybind11/pybind11.h>

namespace collectives {

/// Adds empty, node_info, library_info and dtype_table to the module.
void bind_process(pybind11::module_& module);

} // namespace collectives
