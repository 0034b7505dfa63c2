// The torch backend as Python sees it: Options, the backend's class, and the function that makes one.
// Called by module.cc through bind_c10d; calls nothing else of the bindings but the backend.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>

#include "base/clock.h"
#include "bindings/c10d_backend.h"
#include "bindings/callback_executor.h"
#include "bindings/communicator.h"

namespace py = pybind11;

namespace collectives {
namespace {

using Milliseconds = std::chrono::milliseconds;
using BaseOptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

/// A name of the public interface whose part this version does not have: saying nothing would be a silent fallback.
void refuse(const py::object& value, const char* name, const char* part) {
    COLLECTIVES_CHECK_VALUE(value.is_none(), "Options: ", name, " was given, but this version has no ", part);
}

OptionsPtr make_options(std::optional<Milliseconds> timeout, std::vector<std::string> transports, std::string algorithm,
                        bool deterministic, int64_t staging_bytes, std::optional<std::string> interface,
                        const py::object& in_network, const py::object& compressor) {
    refuse(in_network, "switch", "in-network aggregation");
    refuse(compressor, "compressor", "compression");
    COLLECTIVES_CHECK_VALUE(!timeout || timeout->count() > 0, "Options: timeout must be positive");
    COLLECTIVES_CHECK_VALUE(staging_bytes >= 0, "Options: staging_bytes is ", staging_bytes, ", must not be negative");
    auto options = c10::make_intrusive<C10dOptions>(timeout.value_or(kBackendDefaultTimeout));
    options->transports = std::move(transports);
    options->algorithm = std::move(algorithm);
    options->deterministic = deterministic;
    options->staging_bytes = staging_bytes;
    options->interface = interface.value_or("");
    return options;
}

void bind_options(py::module_& module) {
    py::class_<C10dOptions, c10d::Backend::Options, OptionsPtr>(
        module, "Options",
        "What a process group of this backend may be told (``pg_options``).\n\n"
        "Parameters\n----------\n"
        "timeout : timedelta, optional\n    Of operations that give none; it overrides init_process_group's.\n"
        "transports : list of str\n    The transports that may be used, in order of preference; empty: all.\n"
        "algorithm : str\n    Used wherever it applies; empty: the planner chooses.\n"
        "deterministic : bool\n    Only algorithms that add in the order of the ranks.\n"
        "staging_bytes : int\n    Shared staging memory of this group, bytes; 0: the node decides.\n"
        "interface : str, optional\n    Name or address of this process's interface for peers on other hosts.\n"
        "switch, compressor\n    Must be None in this version.\n\n"
        "Raises\n------\nValueError\n    A timeout that is not positive, a negative size, a part that is missing.\n")
        .def(py::init(&make_options), py::kw_only(), py::arg("timeout") = py::none(),
             py::arg("transports") = std::vector<std::string>(), py::arg("algorithm") = "",
             py::arg("deterministic") = false, py::arg("staging_bytes") = 0, py::arg("interface") = py::none(),
             py::arg("switch") = py::none(), py::arg("compressor") = py::none())
        .def_readwrite("transports", &C10dOptions::transports)
        .def_readwrite("algorithm", &C10dOptions::algorithm)
        .def_readwrite("deterministic", &C10dOptions::deterministic)
        .def_readwrite("staging_bytes", &C10dOptions::staging_bytes)
        .def_readwrite("interface", &C10dOptions::interface)
        .def_readwrite("group_desc", &C10dOptions::group_desc)
        .def(
            "copy", [](const C10dOptions& self) { return c10::make_intrusive<C10dOptions>(self); },
            "An independent copy.");
}

/// What c10d's own class for backends leaves out.
void bind_backend(py::module_& module) {
    using NoGil = py::call_guard<py::gil_scoped_release>;
    py::class_<C10dBackend, c10d::Backend, c10::intrusive_ptr<C10dBackend>>(
        module, "C10dBackend", "The backend of a process group, as ``group._get_backend(device)`` returns it.")
        .def_property_readonly("options", &C10dBackend::options, "The group's Options (live, not a copy).")
        .def(
            "describe", [](C10dBackend& self) { return self.communicator().describe_group(); },
            "What the group runs on and why, on one line.")
        .def("get_error", &C10dBackend::getError, NoGil(), "The first failure as torch's ErrorType.")
        .def("_set_default_timeout", &C10dBackend::setTimeout, py::arg("timeout"), NoGil())
        .def("split", &C10dBackend::split, py::arg("store"), py::arg("ranks"), py::arg("opts") = BaseOptionsPtr(),
             NoGil(), "A new backend of these ranks; None on the others. Called by the members.")
        .def("merge", &C10dBackend::merge, py::arg("store"), py::arg("opts"), py::arg("rank"), py::arg("size"), NoGil(),
             "A new backend of all that call with this store.")
        .def("shrink", &C10dBackend::shrink, py::arg("ranks_to_exclude"), py::arg("shrink_flags") = 0,
             py::arg("opts_override") = BaseOptionsPtr(), NoGil(), "A new backend without these ranks.")
        .def(
            "supports_tensor_alloc", [](C10dBackend&, const at::Device& device) { return device.is_cpu(); },
            py::arg("device"), "True for the CPU.")
        .def("suspend", &C10dBackend::suspend, NoGil(), "Gives up the group's memory; collective.")
        .def("resume", &C10dBackend::resume, NoGil(), "Makes a suspended group usable again; collective.")
        .def("memory_stats", &C10dBackend::getMemoryStats, NoGil(), "Bytes of shared memory in use by this process.")
        .def("allreduce_sparse", &C10dBackend::allreduce_sparse, py::arg("tensors"),
             py::arg("opts") = c10d::AllreduceOptions(), NoGil())
        .def("allgather_into_tensor_coalesced", &C10dBackend::allgather_into_tensor_coalesced, py::arg("outputs"),
             py::arg("inputs"), py::arg("opts") = c10d::AllgatherOptions(), NoGil())
        .def("reduce_scatter_tensor_coalesced", &C10dBackend::reduce_scatter_tensor_coalesced, py::arg("outputs"),
             py::arg("inputs"), py::arg("opts") = c10d::ReduceScatterOptions(), NoGil())
        .def("_wait_for_pending_works", &C10dBackend::waitForPendingWorks, NoGil())
        .def("_enable_collectives_timing", &C10dBackend::enableCollectivesTiming);
}

c10::intrusive_ptr<C10dBackend> create_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::duration<float> timeout, const std::string& name,
                                               std::vector<int64_t> global_ranks, const OptionsPtr& given) {
    auto options = given ? c10::make_intrusive<C10dOptions>(*given) : c10::make_intrusive<C10dOptions>();
    if (options->timeout == kBackendDefaultTimeout)
        options->timeout = std::chrono::duration_cast<Milliseconds>(timeout);
    options->group_name = name;
    options->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
    return C10dBackend::create(store, rank, size, std::move(options));
}

} // namespace

void bind_c10d(py::module_& module) {
    py::module_::import("torch._C._distributed_c10d"); // registers the base classes
    bind_options(module);
    bind_backend(module);
    module.def("create_backend", &create_backend, py::arg("store"), py::arg("rank"), py::arg("size"),
               py::arg("timeout"), py::arg("name"), py::arg("global_ranks"), py::arg("options"),
               py::call_guard<py::gil_scoped_release>(), "Joins a group; collective over the store.");
    // Callbacks into Python must have ended before the interpreter does.
    py::module_::import("atexit").attr("register")(py::cpp_function([] {
        const py::gil_scoped_release no_gil;
        CallbackExecutor::instance().stop(2 * kSecond);
    }));
}

} // namespace collectives
