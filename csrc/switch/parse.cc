// Row 1 of the protocol's table: is it an update, whole and not a byte longer? Twin of p4/controls/parse.p4 and check.p4.
#include "switch/visit.h"

namespace collectives::aggregation {

void parse(Visit& visit, const Served& served, const uint8_t* datagram, size_t bytes) {
    if (bytes < wire::kPacketHeaderBytes) {
        visit.verdict = Verdict::malformed;
        return;
    }
    visit.header = wire::decode_packet(datagram);
    visit.lanes = datagram + wire::kPacketHeaderBytes;
    const wire::PacketHeader& h = visit.header;
    const bool serves =
        (served.lanes == 0 || served.lanes == h.lanes) && (served.lane_bits == 0 || served.lane_bits == h.lane_bits);
    if (wire::check_packet(h, bytes) != nullptr || h.kind != uint8_t(wire::PacketKind::update) || !serves)
        visit.verdict = Verdict::malformed;
}

} // namespace collectives::aggregation
