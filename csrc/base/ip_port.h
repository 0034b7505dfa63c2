// IpPort: an IP address and a UDP port as numbers, the same form for IPv4 and IPv6, to be compared, hashed and kept in tables.
// No name is looked up. May be included by everything; includes base only.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <sys/socket.h>

#include "base/status.h"

namespace collectives {

/// IPv4 addresses in their IPv6 form (::ffff:a.b.c.d). The port as a number of this machine.
struct IpPort {
    std::array<uint8_t, 16> address{};
    uint16_t port = 0;

    bool operator==(const IpPort&) const = default;
    bool is_ipv4() const;
    /// "10.0.0.1", "fd00::1"
    std::string host() const;
    /// "10.0.0.1:5190", "[fd00::1]:5190"
    std::string text() const;
};

IpPort ipv4_port(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port);

/// Numbers only. Errors: invalid_argument (no address, no port, a link-local one: it means nothing without its interface).
Status parse_ip_port(const std::string& host, int64_t port, IpPort* out);

/// As the system calls take it, of the family AF_INET or AF_INET6; its length.
socklen_t to_sockaddr(const IpPort& from, sockaddr_storage* out);
/// `from` is of the family AF_INET or AF_INET6.
IpPort from_sockaddr(const sockaddr* from);

} // namespace collectives
