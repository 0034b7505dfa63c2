// The shm handshake over an abstract unix socket: each side proves that it read the other's hello (a keyed MAC over fresh
// challenges, both directions) before descriptors are passed. Blocking, with deadlines; used by transport/local_node.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/hello.h"

namespace collectives {

/// A listening socket that only this network namespace can reach; its name is derived from `uuid`. -1: see errno.
int open_listener(const Uuid& uuid);

/// Connects to the listener of `uuid`, retrying until the deadline. -1: see errno.
int connect_to(const Uuid& uuid, int64_t deadline_ns);

/// Runs the proof on a connected socket with the key that the acceptor's hello and the job's secret give. Fills
/// `*other` with the peer's uuid. Errors: peer_failed (wrong proof, another user, silence, end of file).
Status prove(int socket, const Uuid& mine, const std::string& key, bool acceptor, int64_t deadline_ns, Uuid* other);

/// After the proof: what each side shows the other.
struct AttachInfo {
    int64_t segment_bytes = 0;
    int64_t heap_bytes = 0;
    int64_t ring_offset = -1;
    int64_t ring_bytes = 0;
    int64_t pid = 0;
    int fds[3] = {-1, -1, -1}; // segment, heap, bell; owned by the receiver once received
};
Status exchange_attach(int socket, const AttachInfo& mine, AttachInfo* theirs, int64_t deadline_ns);

/// One byte each way: both sides mapped and verified what they got (`good`), or not.
Status confirm_attach(int socket, bool good, int64_t deadline_ns);

} // namespace collectives
