// SwitchPipeline for Python: the software switch without its sockets, packet by packet, for tests and for those who want to
// look into it. Addresses are text here.
#include "bindings/switch_pipeline.h"

#include <arpa/inet.h>
#include <pybind11/stl.h>

#include "bindings/errors.h"
#include "switch/pipeline.h"

namespace py = pybind11;

namespace collectives {
namespace {

using Address = std::pair<std::string, int>; // (IP address, UDP port)

aggregation::Source source_of(const Address& address) {
    aggregation::Source source;
    if (address.second < 0 || address.second > 65535)
        throw py::value_error(std::to_string(address.second) + " is no UDP port");
    source.port = uint16_t(address.second);
    const std::string v6 = address.first.find(':') == std::string::npos ? "::ffff:" + address.first : address.first;
    if (inet_pton(AF_INET6, v6.c_str(), source.address.data()) != 1)
        throw py::value_error("'" + address.first + "' is no IP address");
    return source;
}

struct PySwitch {
    aggregation::SwitchPipeline pipeline;
    std::vector<uint8_t> out = std::vector<uint8_t>(wire::kMostPacketBytes);

    void admit(uint32_t job, uint32_t incarnation, const std::vector<Address>& workers, uint32_t slots,
               int most_lanes) {
        aggregation::Admission admission{job, incarnation, {}, slots, most_lanes};
        for (const Address& each : workers) admission.workers.push_back(source_of(each));
        if (const Status status = pipeline.admit(admission); !status.ok())
            throw_status(status);
    }

    py::tuple process(const Address& from, const py::bytes& datagram, int64_t now_ns) {
        const std::string_view bytes = datagram;
        const aggregation::Reply reply = pipeline.process(
            source_of(from), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), now_ns, out.data());
        py::object worker = reply.bytes > 0 && reply.worker >= 0 ? py::object(py::int_(reply.worker)) : py::none();
        return py::make_tuple(aggregation::name_of(reply.verdict), worker,
                              py::bytes(reinterpret_cast<const char*>(out.data()), reply.bytes));
    }

    py::dict counters() const {
        py::dict found;
        for (int i = 1; i < int(aggregation::Verdict::count); ++i)
            found[aggregation::name_of(aggregation::Verdict(i))] = pipeline.counter(aggregation::Verdict(i));
        return found;
    }

    py::list waiting() const {
        py::list found;
        for (const aggregation::Waiting& each : pipeline.waiting()) {
            py::list missing;
            for (int w = 0; w < wire::kMostWorkers; ++w)
                if (each.missing >> w & 1)
                    missing.append(w);
            found.append(py::make_tuple(each.job, each.slot, each.epoch, each.begun_ns, missing));
        }
        return found;
    }
};

} // namespace

void bind_switch(py::module_& module) {
    py::class_<PySwitch>(module, "SwitchPipeline")
        .def(py::init([](int64_t pool_bytes, int lanes, int lane_bits) {
                 return new PySwitch{aggregation::SwitchPipeline(pool_bytes, {lanes, lane_bits})};
             }),
             py::arg("pool_bytes") = int64_t(64) << 20, py::arg("lanes") = 0, py::arg("lane_bits") = 0)
        .def("admit", &PySwitch::admit, py::arg("job"), py::arg("incarnation"), py::arg("workers"), py::arg("slots"),
             py::arg("most_lanes"))
        .def(
            "release", [](PySwitch& self, uint32_t job) { return self.pipeline.release(job); }, py::arg("job"))
        .def("process", &PySwitch::process, py::arg("source"), py::arg("datagram"), py::arg("now_ns") = 0)
        .def("counters", &PySwitch::counters)
        .def("waiting", &PySwitch::waiting);
}

} // namespace collectives
