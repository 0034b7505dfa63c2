// Names of the status codes and the empty message of success.
#include "base/status.h"

namespace collectives {

const char* code_name(Code code) {
    switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid argument";
    case Code::unsupported: return "unsupported";
    case Code::mismatch: return "mismatch";
    case Code::timeout: return "timeout";
    case Code::peer_failed: return "peer failed";
    case Code::aborted: return "aborted";
    case Code::interrupted: return "interrupted";
    case Code::closed: return "closed";
    case Code::internal: return "internal error";
    }
    return "unknown";
}

const std::string& Status::message() const {
    static const std::string empty;
    return rep_ ? rep_->message : empty;
}

} // namespace collectives
