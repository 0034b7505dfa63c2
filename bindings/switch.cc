// The software switch for Python: SwitchPipeline, without its sockets, packet by packet, for tests and for those who want to
// look into it; SwitchServer, with them; and the packets' tag. Addresses are text here.
#include "bindings/switch.h"

#include <pybind11/stl.h>

#include "base/clock.h"
#include "bindings/errors.h"
#include "switch/server.h"

namespace py = pybind11;

namespace collectives {
namespace {

using Address = std::pair<std::string, int>; // (IP address, UDP port)

void check(const Status& status) {
    if (!status.ok())
        throw_status(status);
}

IpPort source_of(const Address& address) {
    IpPort source;
    check(parse_ip_port(address.first, address.second, &source));
    return source;
}

std::vector<IpPort> sources_of(const std::vector<Address>& addresses) {
    std::vector<IpPort> sources;
    for (const Address& each : addresses) sources.push_back(source_of(each));
    return sources;
}

wire::TagKey key_of(const py::bytes& bytes) {
    const std::string_view given = bytes;
    wire::TagKey key;
    if (given.size() != key.size())
        throw py::value_error("a key of tags has " + std::to_string(key.size()) + " bytes, not " +
                              std::to_string(given.size()));
    std::copy(given.begin(), given.end(), key.begin());
    return key;
}

using MaybeKey = std::optional<py::bytes>;

aggregation::Admission admission_of(uint32_t job, uint32_t incarnation, const std::vector<Address>& workers,
                                    uint32_t slots, int most_lanes, const MaybeKey& key) {
    aggregation::Admission admission{job, incarnation, sources_of(workers), slots, most_lanes};
    if (key)
        admission.key = key_of(*key);
    return admission;
}

/// By name; those that are 0 are left out, unless all are asked for.
py::dict counts_of(const aggregation::Counts& counts, bool all = false) {
    py::dict found;
    for (size_t i = 1; i < counts.size(); ++i)
        if (all || counts[i] != 0)
            found[aggregation::name_of(aggregation::Verdict(i))] = counts[i];
    return found;
}

py::list waiting_of(const std::vector<aggregation::Waiting>& waiting) {
    py::list found;
    for (const aggregation::Waiting& each : waiting) {
        py::list missing;
        for (int w = 0; w < wire::kMostWorkers; ++w)
            if (each.missing >> w & 1)
                missing.append(w);
        found.append(py::make_tuple(each.job, each.slot, each.epoch, each.begun_ns, missing));
    }
    return found;
}

struct PySwitch {
    aggregation::SwitchPipeline pipeline;
    std::vector<uint8_t> out = std::vector<uint8_t>(wire::kMostPacketBytes);

    void admit(uint32_t job, uint32_t incarnation, const std::vector<Address>& workers, uint32_t slots, int most_lanes,
               const MaybeKey& key) {
        check(pipeline.admit(admission_of(job, incarnation, workers, slots, most_lanes, key)));
    }

    py::tuple process(const Address& from, const py::bytes& datagram, int64_t now_ns) {
        const std::string_view bytes = datagram;
        const aggregation::Reply reply = pipeline.process(
            source_of(from), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), now_ns, out.data());
        py::object worker = reply.bytes > 0 && reply.worker >= 0 ? py::object(py::int_(reply.worker)) : py::none();
        return py::make_tuple(aggregation::name_of(reply.verdict), worker,
                              py::bytes(reinterpret_cast<const char*>(out.data()), reply.bytes));
    }

    py::dict counters() const { return counts_of(pipeline.counters(), true); }
    py::list waiting() const { return waiting_of(pipeline.waiting()); }
};

/// The server; its lock is taken without the interpreter's, so that packets never wait for Python.
struct PyServer {
    std::unique_ptr<aggregation::SwitchServer> server;

    PyServer(const std::vector<Address>& addresses, int64_t pool_bytes) {
        aggregation::ServerOptions options;
        options.pool_bytes = pool_bytes;
        const std::vector<IpPort> places = sources_of(addresses);
        py::gil_scoped_release release;
        const Status status = aggregation::SwitchServer::start(places, options, &server);
        py::gil_scoped_acquire acquire;
        check(status);
    }

    aggregation::SwitchServer& running() const {
        if (server == nullptr)
            throw py::value_error("this switch is closed");
        return *server;
    }

    void admit(uint32_t job, uint32_t incarnation, const std::vector<Address>& workers, uint32_t slots, int most_lanes,
               const MaybeKey& key) {
        const aggregation::Admission admission = admission_of(job, incarnation, workers, slots, most_lanes, key);
        aggregation::SwitchServer& open = running();
        Status status;
        {
            py::gil_scoped_release release;
            status = open.admit(admission);
        }
        check(status);
    }

    bool release(uint32_t job) {
        aggregation::SwitchServer& open = running();
        py::gil_scoped_release release;
        return open.release(job);
    }

    /// What `take` copies out of the pipeline.
    template <class T, class Take> T taken(const Take& take) const {
        T found;
        aggregation::SwitchServer& open = running();
        py::gil_scoped_release release;
        open.look([&](const aggregation::SwitchPipeline& pipeline) { found = take(pipeline); });
        return found;
    }

    py::dict counters() const {
        const auto counts =
            taken<aggregation::Counts>([](const aggregation::SwitchPipeline& pipeline) { return pipeline.counters(); });
        py::dict found = counts_of(counts, true);
        found["not_sent"] = running().not_sent();
        return found;
    }

    py::list waiting() const {
        return waiting_of(taken<std::vector<aggregation::Waiting>>(
            [](const aggregation::SwitchPipeline& pipeline) { return pipeline.waiting(); }));
    }

    struct JobCopy {
        uint32_t number, incarnation;
        size_t slots;
        int most_lanes;
        std::vector<aggregation::Member> workers;
        std::vector<aggregation::Counts> slot_counts;
    };

    py::list jobs() const {
        const auto copies = taken<std::vector<JobCopy>>([](const aggregation::SwitchPipeline& pipeline) {
            std::vector<JobCopy> all;
            for (const aggregation::Job* job : pipeline.jobs())
                all.push_back({job->number, job->incarnation, job->slots.size(), job->most_lanes, job->workers,
                               job->slot_counts});
            return all;
        });
        py::list found;
        for (const JobCopy& job : copies) {
            py::list workers;
            for (const aggregation::Member& each : job.workers)
                workers.append(py::make_tuple(each.at.host(), each.at.port, counts_of(each.counts), each.last_ns));
            py::dict slots;
            for (size_t s = 0; s < job.slot_counts.size(); ++s)
                if (py::dict counts = counts_of(job.slot_counts[s]); !counts.empty())
                    slots[py::int_(s)] = counts;
            found.append(py::make_tuple(job.number, job.incarnation, job.slots, job.most_lanes, workers, slots));
        }
        return found;
    }

    py::list addresses() const {
        py::list found;
        for (const IpPort& each : running().addresses()) found.append(py::make_tuple(each.host(), each.port));
        return found;
    }

    void close() {
        py::gil_scoped_release release;
        server.reset();
    }
};

uint64_t packet_tag(const py::bytes& key, const py::bytes& packet) {
    const std::string_view bytes = packet;
    if (bytes.size() < wire::kPacketHeaderBytes || bytes.size() > wire::kMostPacketBytes)
        throw py::value_error(std::to_string(bytes.size()) + " bytes are no packet");
    return wire::Tagger(key_of(key)).tag(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

} // namespace

void bind_switch(py::module_& module) {
    py::class_<PySwitch>(module, "SwitchPipeline")
        .def(py::init([](int64_t pool_bytes, int lanes, int lane_bits) {
                 return new PySwitch{aggregation::SwitchPipeline(pool_bytes, {lanes, lane_bits})};
             }),
             py::arg("pool_bytes") = int64_t(64) << 20, py::arg("lanes") = 0, py::arg("lane_bits") = 0)
        .def("admit", &PySwitch::admit, py::arg("job"), py::arg("incarnation"), py::arg("workers"), py::arg("slots"),
             py::arg("most_lanes"), py::arg("key") = py::none())
        .def(
            "release", [](PySwitch& self, uint32_t job) { return self.pipeline.release(job); }, py::arg("job"))
        .def("process", &PySwitch::process, py::arg("source"), py::arg("datagram"), py::arg("now_ns") = 0)
        .def("counters", &PySwitch::counters)
        .def("waiting", &PySwitch::waiting);
    py::class_<PyServer>(module, "SwitchServer")
        .def(py::init<const std::vector<Address>&, int64_t>(), py::arg("addresses"),
             py::arg("pool_bytes") = int64_t(64) << 20)
        .def("admit", &PyServer::admit, py::arg("job"), py::arg("incarnation"), py::arg("workers"), py::arg("slots"),
             py::arg("most_lanes"), py::arg("key") = py::none())
        .def("release", &PyServer::release, py::arg("job"))
        .def("counters", &PyServer::counters)
        .def("jobs", &PyServer::jobs)
        .def("waiting", &PyServer::waiting)
        .def("now_ns", [](const PyServer&) { return monotonic_ns(); })
        .def("close", &PyServer::close)
        .def_property_readonly("addresses", &PyServer::addresses);
    module.def("packet_tag", &packet_tag, py::arg("key"), py::arg("packet"));
}

} // namespace collectives
