// The extension module collectives._core: everything that Python sees of the C++ side.
#include <pybind11/pybind11.h>

#include "bindings/communicator.h"
#include "bindings/errors.h"
#include "bindings/process.h"
#include "bindings/switch.h"

PYBIND11_MODULE(_core, module) {
    module.doc() = "The C++ side of collectives; use the names in `collectives` instead.";
    pybind11::module_::import("torch"); // its types (Tensor, Store, Backend) must be known to pybind11 before ours
    collectives::install_interrupt_check();
    collectives::bind_process(module);
    collectives::bind_communicator(module);
    collectives::bind_c10d(module);
    collectives::bind_switch(module);
}
