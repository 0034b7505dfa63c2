// What a new group says in the log. See group_log.h.
#include "bindings/group_log.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace collectives {

void log_group(const Communicator& communicator) {
    py::gil_scoped_acquire gil;
    try {
        const py::module_ log = py::module_::import("collectives.log");
        if (!log.attr("enabled")().cast<bool>())
            return;
        log.attr("group_made")(communicator.config().name, communicator.rank(), communicator.world_size(),
                               communicator.describe_group());
    } catch (py::error_already_set& error) { // of the user's handler: the group is made all the same
        error.discard_as_unraisable("collectives.log.group_made");
    }
}

} // namespace collectives
