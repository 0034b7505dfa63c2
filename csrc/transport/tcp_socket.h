// TCP sockets: addresses as text, the listener, connections that never block, and the choice of the interface. No protocol.
// Included by transport only.
#pragma once

#include <cstdint>
#include <string>

#include <sys/socket.h>

#include "base/status.h"

namespace collectives {

struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    int family() const { return storage.ss_family; }
    bool loopback() const;
    /// "10.0.0.1:4711", "[fd00::1]:4711"
    std::string text() const;
    /// The same without the port.
    std::string host() const;
};

/// Numbers only, as Address::text writes them: no name is looked up. Errors: internal (a peer's text that is none).
Status parse_address(const std::string& text, Address* out);

struct Choice {
    Address address; // port 0
    std::string why; // for the log: "eth0, by the route to 10.0.0.1"
};

/// The address that peers on other hosts shall use. `wish`: an interface's name or an address of this host; empty: the
/// interface on the route to `towards` (a name or address, where the job's store is; may be empty), and where that is
/// this host itself, the first interface that is up and no loopback. Loopback when there is nothing else.
/// Errors: invalid_argument (no such interface or address; names those there are).
Status choose_address(const std::string& wish, const std::string& towards, Choice* out);

/// Listens there on a free port; `*bound` has it. The descriptor does not block. Errors: internal.
Status listen_on(const Address& address, int* fd, Address* bound);

/// Begins to connect; never blocks. -1: see errno.
int begin_connect(const Address& to);
/// In words; of too many descriptors with their limit, and what they are for.
std::string socket_error(int error);
/// What a connection that became writable has come to: 0, or an errno.
int connect_result(int fd);
/// No delay for small frames, no inheritance, no SIGPIPE by the callers' flags.
void set_options(int fd);

} // namespace collectives
