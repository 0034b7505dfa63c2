// The software switch for Python: its pipeline, its server, and the packets' tag. Included by module.cc only.
#pragma once

#include <pybind11/pybind11.h>

namespace collectives {

/// Adds SwitchPipeline, SwitchServer and packet_tag to the module.
void bind_switch(pybind11::module_& module);

} // namespace collectives
