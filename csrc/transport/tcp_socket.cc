// Addresses, listener and interface choice. See tcp_socket.h.
#include "transport/tcp_socket.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

namespace collectives {
namespace {

Status system_error(const std::string& what) { return Status(Code::internal, what + ": " + std::strerror(errno)); }

const sockaddr* raw(const Address& a) { return reinterpret_cast<const sockaddr*>(&a.storage); }

Address copy_of(const sockaddr* from) {
    Address a;
    a.length = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&a.storage, from, a.length);
    return a;
}

void set_port(Address* a, uint16_t port) {
    if (a->family() == AF_INET)
        reinterpret_cast<sockaddr_in*>(&a->storage)->sin_port = htons(port);
    else
        reinterpret_cast<sockaddr_in6*>(&a->storage)->sin6_port = htons(port);
}

struct Interface {
    std::string name;
    Address address;
};

/// Interfaces that are up, IPv4 before IPv6; link-local ones are left out, since their addresses mean nothing elsewhere.
std::vector<Interface> interfaces() {
    std::vector<Interface> found;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0)
        return found;
    for (int family : {AF_INET, AF_INET6})
        for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
            if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0)
                continue;
            Address a = copy_of(i->ifa_addr);
            auto* six = reinterpret_cast<const sockaddr_in6*>(&a.storage);
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
                continue;
            found.push_back({i->ifa_name, a});
        }
    freeifaddrs(list);
    return found;
}

std::string name_of(const Address& address) {
    for (const Interface& each : interfaces())
        if (each.address.host() == address.host())
            return each.name;
    return "?";
}

/// Our address on the way to `host`: a datagram socket that is connected, and sends nothing, knows it.
bool source_towards(const std::string& host, Address* out) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    if (getaddrinfo(host.c_str(), "9", &hints, &list) != 0)
        return false;
    bool found = false;
    for (addrinfo* i = list; i != nullptr && !found; i = i->ai_next) {
        int fd = socket(i->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) == 0) {
            out->length = sizeof out->storage;
            found = getsockname(fd, reinterpret_cast<sockaddr*>(&out->storage), &out->length) == 0;
        }
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    if (found)
        set_port(out, 0);
    return found;
}

Status wished(const std::string& wish, Choice* out) {
    std::string there;
    for (const Interface& each : interfaces()) {
        if (each.name == wish || each.address.host() == wish) {
            *out = {each.address, each.name + " (" + each.address.host() + "), as asked for"};
            return {};
        }
        there += (there.empty() ? "" : ", ") + each.name + " (" + each.address.host() + ")";
    }
    return Status(Code::invalid_argument,
                  "interface '" + wish +
                      "': no interface of this host that is up has this name or address; there are " + there);
}

} // namespace

bool Address::loopback() const {
    if (family() == AF_INET)
        return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

std::string Address::host() const {
    char host[NI_MAXHOST] = "?";
    getnameinfo(raw(*this), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

std::string Address::text() const {
    char port[NI_MAXSERV] = "?";
    getnameinfo(raw(*this), length, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
    return (family() == AF_INET6 ? "[" + host() + "]" : host()) + ":" + port;
}

Status parse_address(const std::string& text, Address* out) {
    size_t colon = text.rfind(':');
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (colon == std::string::npos || getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &list) != 0)
        return Status(Code::internal, "'" + text.substr(0, 100) + "' is no address and port");
    *out = copy_of(list->ai_addr);
    freeaddrinfo(list);
    return {};
}

Status choose_address(const std::string& wish, const std::string& towards, Choice* out) {
    if (!wish.empty())
        return wished(wish, out);
    Address source;
    if (!towards.empty() && source_towards(towards, &source) && !source.loopback()) {
        *out = {source, name_of(source) + " (" + source.host() + "), by the route to " + towards};
        return {};
    }
    for (const Interface& each : interfaces())
        if (!each.address.loopback()) {
            *out = {each.address, each.name + " (" + each.address.host() + "), the first that is up"};
            return {};
        }
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *out = {copy_of(reinterpret_cast<sockaddr*>(&loopback)), "loopback, for there is no other interface"};
    return {};
}

void set_options(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Status listen_on(const Address& address, int* fd, Address* bound) {
    *fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return system_error("cannot open a TCP socket");
    Status status;
    bound->length = sizeof bound->storage;
    if (bind(*fd, raw(address), address.length) != 0 || listen(*fd, 1024) != 0 ||
        getsockname(*fd, reinterpret_cast<sockaddr*>(&bound->storage), &bound->length) != 0)
        status = system_error("cannot listen on " + address.host());
    if (!status.ok())
        close(*fd);
    return status;
}

int begin_connect(const Address& to) {
    int fd = socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    set_options(fd);
    if (connect(fd, raw(to), to.length) == 0 || errno == EINPROGRESS)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

std::string socket_error(int error) {
    std::string text = std::strerror(error);
    rlimit limit{};
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        text += " (this process may have " + std::to_string(limit.rlim_cur) +
                "; each peer takes up to 2 and 2 for each stream: raise the limit, `ulimit -n`)";
    return text;
}

int connect_result(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

} // namespace collectives
