// Hello: what a process says of itself when a group forms; travels through the bootstrap. Included by transport and engine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace collectives {

using Uuid = std::array<uint8_t, 16>;

struct Hello {
    uint32_t wire_version = 0;
    std::string library_version;
    Uuid uuid{};
    std::string kind;    // "shm" or "inproc"
    std::string boot_id; // the same on one running kernel
    uint64_t net_namespace = 0;
    int64_t pid = 0;
    std::string host;
    std::string share; // secret of this process: whoever knows it read it from the job's store

    std::string encode() const;
    /// Errors: mismatch (another wire version; names both), internal (garbage).
    static Status decode(std::string_view bytes, Hello* out);
};

/// Fills everything but kind. Errors: internal when the kernel gives no random bytes.
Status describe_this_process(const std::string& host, Hello* out);

std::string uuid_text(const Uuid& uuid);

/// Why the two cannot share memory, or empty when they may (the attach test still has to succeed).
std::string why_not_local(const Hello& a, const Hello& b);

} // namespace collectives
