// Row 3: does the packet prove that its sender has the job's key? P4 has no twin: a switch in P4 carries `auth` unchecked.
#include "switch/visit.h"

namespace collectives::aggregation {

void tag(Visit& visit) {
    const wire::Tagger* tagger = visit.job->tagger.get();
    if (tagger != nullptr && !tagger->verify(visit.datagram, visit.bytes))
        visit.verdict = Verdict::bad_tag;
}

} // namespace collectives::aggregation
