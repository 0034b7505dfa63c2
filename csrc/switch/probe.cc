// Row 6: a probe of the path, which is answered with as many bytes to the worker that sent it, so that nobody gets more than
// was sent, and nobody who was not admitted gets anything. P4 has no twin: a program is built for one size.
#include "switch/visit.h"

namespace collectives::aggregation {

void probe(Visit& visit) {
    if (visit.header.kind == uint8_t(wire::PacketKind::probe))
        visit.verdict = Verdict::probed;
}

} // namespace collectives::aggregation
