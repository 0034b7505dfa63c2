// The node of this process as the bindings share it, and what Python may ask about the library and the machine.
// See communicator.h (process_node) and process.h.
#include "bindings/process.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <vector>

#include "algorithms/call.h"
#include "bindings/communicator.h"
#include "bindings/errors.h"
#include "bindings/shared_allocator.h"
#include "bindings/tensor_view.h"
#include "kernels/kernels.h"
#include "transport/transports.h"
#include "types/reduce_op.h"

namespace py = pybind11;

namespace collectives {
namespace {

std::atomic<Node*> the_node{nullptr};
std::atomic<bool> exit_registered{false};

/// collectives.memory.node_settings() reads COLLECTIVES_*; what it does not name keeps NodeConfig's default.
NodeConfig config_from_environment() {
    py::gil_scoped_acquire gil;
    const py::dict settings = py::module_::import("collectives.memory").attr("node_settings")();
    NodeConfig config;
    for (const auto& [key, value] : settings) {
        const auto name = key.cast<std::string>();
        if (name == "segment_bytes")
            config.segment_bytes = value.cast<int64_t>();
        else if (name == "heap_bytes")
            config.heap_bytes = value.cast<int64_t>();
        else if (name == "spin_ns")
            config.spin_ns = value.cast<int64_t>();
        else if (name == "secret")
            config.secret = value.cast<std::string>();
        else if (name == "streaming_stores")
            config.streaming_stores = value.cast<std::string>();
        else if (name == "link_profiles")
            config.link_profiles = value.cast<std::string>();
        else if (name == "profile_folder")
            config.profile_folder = value.cast<std::string>();
        else if (name == "interface")
            config.interface = value.cast<std::string>();
        else if (name == "towards")
            config.towards = value.cast<std::string>();
        else if (name == "streams")
            config.streams = value.cast<int>();
        else if (name == "host")
            config.host = value.cast<std::string>();
        else
            throw py::key_error("collectives.memory.node_settings: unknown setting " + name);
    }
    return config;
}

void shut_down_node() {
    Node* node = the_node.load(std::memory_order_acquire);
    py::gil_scoped_release release; // the progress thread may need the GIL to end
    if (node != nullptr)
        node->shutdown();
}

/// Registered when the node is made: Python runs such functions last-in first-out, so that functions which the user
/// registered later, and which may still run collectives, come first.
void register_exit() {
    if (exit_registered.exchange(true))
        return;
    py::gil_scoped_acquire gil;
    py::module_::import("atexit").attr("register")(py::cpp_function(&shut_down_node));
}

Status make_node(Node** out) {
    NodeConfig config;
    try {
        config = config_from_environment();
    } catch (py::error_already_set& error) {
        py::gil_scoped_acquire gil;
        const Code code = error.matches(PyExc_ValueError) ? Code::invalid_argument : Code::internal;
        return {code, py::str(error.value()).cast<std::string>()};
    }
    Node* node = nullptr;
    COLLECTIVES_RETURN_IF_ERROR(Node::process(config, &node));
    register_exit();
    the_node.store(node, std::memory_order_release);
    *out = node;
    return {};
}

py::dict node_info() {
    Node* node = the_node.load(std::memory_order_acquire);
    py::dict info;
    info["exists"] = node != nullptr;
    info["segment_used_bytes"] = node != nullptr ? node->segment_used_bytes() : 0;
    info["heap_used_bytes"] = node != nullptr ? node->heap_used_bytes() : 0;
    return info;
}

at::Tensor empty(const std::vector<int64_t>& sizes, py::handle dtype) {
    const auto type = reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
    int64_t count = 1;
    for (const int64_t size : sizes) {
        if (size < 0)
            throw py::value_error("shape: sizes must not be negative");
        if (__builtin_mul_overflow(count, size, &count))
            throw py::value_error("shape: more elements than any array has");
    }
    Node* node = nullptr;
    if (const Status status = process_node(&node); !status.ok())
        throw_status(status); // as an exception of this library, not of c10d
    return empty_shared(count, type).view(sizes);
}

py::list dtype_table() {
    py::list rows;
    for (const DTypeInfo& row : kDTypes) {
        py::list ops;
        for (const ReduceOpInfo& op : kReduceOps)
            if (supports(op.op, row.dtype))
                ops.append(op.name);
        rows.append(py::make_tuple(row.name, static_cast<int>(row.size_bytes), ops));
    }
    return rows;
}

py::dict library_info() {
    py::dict info;
    info["version"] = COLLECTIVES_VERSION;
    info["torch_version"] = COLLECTIVES_TORCH_VERSION; // compiled against
    info["simd_target"] = kernels::target_name();
    py::list targets;
    for (const std::string_view name : kernels::targets()) targets.append(std::string(name));
    info["simd_targets"] = targets;
    py::list collectives;
    for (int i = 0; i < kCollectiveCount; ++i) collectives.append(collective_name(static_cast<Collective>(i)));
    info["collectives"] = collectives;
    py::list transports;
    for (int i = 0; i < kTransportCount; ++i)
        if (kTransports[i].between_processes && !kTransports[i].wraps)
            transports.append(kTransports[i].name);
    info["transports"] = py::tuple(transports);
    return info;
}

} // namespace

Status process_node(Node** out) {
    if (in_forked_child())
        return Node::process(NodeConfig(), out); // which refuses, without a word to Python: it may be at its end
    *out = the_node.load(std::memory_order_acquire);
    return *out != nullptr ? Status() : make_node(out);
}

void bind_process(py::module_& module) {
    module.def("empty", &empty, py::arg("sizes"), py::arg("dtype"), "A zeroed tensor that peers can reach.");
    module.def("node_info", &node_info, "Whether this process has a node, and how much shared memory it uses.");
    module.def("library_info", &library_info,
               "Versions, the SIMD targets, and the names of the collectives and transports.");
    module.def("dtype_table", &dtype_table, "(name, bytes, reduce operations) of every dtype.");
}

} // namespace collectives
