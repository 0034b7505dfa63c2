// The software switch's pipeline for Python. Included by module.cc only.
#pragma once

#include <pybind11/pybind11.h>

namespace collectives {

/// Adds SwitchPipeline to the module.
void bind_switch(pybind11::module_& module);

} // namespace collectives
