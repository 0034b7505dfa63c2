// Row 1 of the protocol's table: is it an update or a probe, whole and not a byte longer? Twin of p4/controls/parse.p4 and
// check.p4, which know no probes.
#include "switch/visit.h"

namespace collectives::aggregation {

void parse(Visit& visit, const Served& served, const uint8_t* datagram, size_t bytes) {
    if (bytes < wire::kPacketHeaderBytes) {
        visit.verdict = Verdict::malformed;
        return;
    }
    visit.datagram = datagram;
    visit.bytes = bytes;
    visit.header = wire::decode_packet(datagram);
    visit.lanes = datagram + wire::kPacketHeaderBytes;
    const wire::PacketHeader& h = visit.header;
    const bool serves =
        (served.lanes == 0 || served.lanes == h.lanes) && (served.lane_bits == 0 || served.lane_bits == h.lane_bits);
    const bool known = h.kind == uint8_t(wire::PacketKind::update) ||
                       (h.kind == uint8_t(wire::PacketKind::probe) && served.lanes == 0);
    if (wire::check_packet(h, bytes) != nullptr || !known || !serves)
        visit.verdict = Verdict::malformed;
}

} // namespace collectives::aggregation
