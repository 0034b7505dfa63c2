// Text and sockaddr forms of an IpPort. See ip_port.h.
#include "base/ip_port.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace collectives {
namespace {

constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}; // before the four bytes of IPv4

} // namespace

bool IpPort::is_ipv4() const { return std::equal(kMapped.begin(), kMapped.end(), address.begin()); }

std::string IpPort::host() const {
    char text[INET6_ADDRSTRLEN] = "?";
    if (is_ipv4())
        inet_ntop(AF_INET, address.data() + kMapped.size(), text, sizeof text);
    else
        inet_ntop(AF_INET6, address.data(), text, sizeof text);
    return text;
}

std::string IpPort::text() const { return (is_ipv4() ? host() : "[" + host() + "]") + ":" + std::to_string(port); }

IpPort ipv4_port(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}, port};
}

Status parse_ip_port(const std::string& host, int64_t port, IpPort* out) {
    if (port < 0 || port > 65535)
        return Status(Code::invalid_argument, std::to_string(port) + " is no UDP port: 0 to 65535");
    out->port = uint16_t(port);
    const bool v6 = host.find(':') != std::string::npos;
    std::copy(kMapped.begin(), kMapped.end(), out->address.begin());
    if (inet_pton(v6 ? AF_INET6 : AF_INET, host.c_str(), out->address.data() + (v6 ? 0 : kMapped.size())) != 1)
        return Status(Code::invalid_argument, "'" + host.substr(0, 100) + "' is no IP address: write it as numbers");
    if (v6 && out->address[0] == 0xfe && (out->address[1] & 0xc0) == 0x80)
        return Status(Code::invalid_argument, "'" + host + "' is link-local, and means nothing to other interfaces");
    return {};
}

socklen_t to_sockaddr(const IpPort& from, sockaddr_storage* out) {
    if (from.is_ipv4()) {
        sockaddr_in four{};
        four.sin_family = AF_INET;
        four.sin_port = htons(from.port);
        std::memcpy(&four.sin_addr, from.address.data() + kMapped.size(), 4);
        std::memcpy(out, &four, sizeof four);
        return sizeof four;
    }
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(from.port);
    std::memcpy(&six.sin6_addr, from.address.data(), 16);
    std::memcpy(out, &six, sizeof six);
    return sizeof six;
}

IpPort from_sockaddr(const sockaddr* from) {
    IpPort found;
    if (from->sa_family == AF_INET) {
        sockaddr_in four;
        std::memcpy(&four, from, sizeof four);
        std::copy(kMapped.begin(), kMapped.end(), found.address.begin());
        std::memcpy(found.address.data() + kMapped.size(), &four.sin_addr, 4);
        found.port = ntohs(four.sin_port);
    } else {
        sockaddr_in6 six;
        std::memcpy(&six, from, sizeof six);
        std::memcpy(found.address.data(), &six.sin6_addr, 16);
        found.port = ntohs(six.sin6_port);
    }
    return found;
}

} // namespace collectives
