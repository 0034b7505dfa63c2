// Sockets, MACs and descriptor passing of the shm handshake. Messages are fixed-size records of a SOCK_SEQPACKET socket,
// so that a stranger's bytes cost one failed read.
#include "transport/handshake.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

namespace collectives {
namespace {

constexpr int kMacBytes = 32;

struct Challenge {
    char magic[8];
    uint8_t uuid[16];
    uint8_t nonce[32];
};
struct Proof {
    uint8_t mac[kMacBytes];
};
struct AttachWire {
    int64_t segment_bytes, heap_bytes, ring_offset, ring_bytes, pid;
};
constexpr char kMagic[8] = {'c', 'o', 'l', 'l', 's', 'h', 'm', '1'};

Status failed(const char* what) { return Status(Code::peer_failed, std::string("shm handshake: ") + what); }

Status wait_for(int socket, short events, int64_t deadline_ns) {
    for (;;) {
        int64_t left = deadline_ns - monotonic_ns();
        if (left <= 0)
            return failed("the peer stayed silent until the deadline");
        pollfd p{socket, events, 0};
        int n = poll(&p, 1, int(std::min<int64_t>(left / kMillisecond + 1, 1000)));
        if (n > 0)
            return {};
        if (n < 0 && errno != EINTR)
            return failed(std::strerror(errno));
    }
}

Status send_record(int socket, const void* data, size_t bytes) {
    ssize_t n = send(socket, data, bytes, MSG_NOSIGNAL);
    return n == ssize_t(bytes) ? Status() : failed(n < 0 ? std::strerror(errno) : "short write");
}

Status receive_record(int socket, void* data, size_t bytes, int64_t deadline_ns) {
    COLLECTIVES_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline_ns));
    ssize_t n = recv(socket, data, bytes, MSG_TRUNC);
    if (n == 0)
        return failed("the peer closed the connection");
    return n == ssize_t(bytes) ? Status() : failed(n < 0 ? std::strerror(errno) : "a record of the wrong size");
}

sockaddr_un address_of(const Uuid& uuid, socklen_t* length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string name = "collectives-" + uuid_text(uuid);
    std::memcpy(address.sun_path + 1, name.data(), name.size()); // leading NUL: abstract
    *length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

void mac_of(const std::string& key, char role, const Challenge& prover, const Challenge& verifier, uint8_t* mac) {
    std::string text = std::string("collectives shm ") + role;
    text.append(reinterpret_cast<const char*>(&prover), sizeof prover);
    text.append(reinterpret_cast<const char*>(&verifier), sizeof verifier);
    unsigned length = kMacBytes;
    HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const uint8_t*>(text.data()), text.size(), mac,
         &length);
}

Status check_same_user(int socket) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
        return failed(std::strerror(errno));
    if (credentials.uid != geteuid() && credentials.uid != 0)
        return failed("the peer is another user");
    return {};
}

} // namespace

int open_listener(const Uuid& uuid) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    socklen_t length;
    sockaddr_un address = address_of(uuid, &length);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 128) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int connect_to(const Uuid& uuid, int64_t deadline_ns) {
    socklen_t length;
    sockaddr_un address = address_of(uuid, &length);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return -1;
        if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0)
            return fd;
        int error = errno;
        close(fd);
        errno = error;
        bool again = error == EAGAIN || error == EINTR; // a full backlog; a refused one has no listener and will not
        if (!again || monotonic_ns() >= deadline_ns)
            return -1;
        usleep(1000);
    }
}

Status prove(int socket, const Uuid& mine, const std::string& key, bool acceptor, int64_t deadline_ns, Uuid* other) {
    COLLECTIVES_RETURN_IF_ERROR(check_same_user(socket));
    Challenge own{}, theirs{};
    std::memcpy(own.magic, kMagic, sizeof kMagic);
    std::memcpy(own.uuid, mine.data(), mine.size());
    if (getrandom(own.nonce, sizeof own.nonce, 0) != ssize_t(sizeof own.nonce))
        return failed("no random bytes");
    COLLECTIVES_RETURN_IF_ERROR(send_record(socket, &own, sizeof own));
    COLLECTIVES_RETURN_IF_ERROR(receive_record(socket, &theirs, sizeof theirs, deadline_ns));
    if (std::memcmp(theirs.magic, kMagic, sizeof kMagic) != 0)
        return failed("the peer speaks another protocol");
    Proof proof, expected, received;
    mac_of(key, acceptor ? 'A' : 'C', own, theirs, proof.mac);
    mac_of(key, acceptor ? 'C' : 'A', theirs, own, expected.mac);
    COLLECTIVES_RETURN_IF_ERROR(send_record(socket, &proof, sizeof proof));
    COLLECTIVES_RETURN_IF_ERROR(receive_record(socket, &received, sizeof received, deadline_ns));
    if (CRYPTO_memcmp(received.mac, expected.mac, kMacBytes) != 0)
        return failed("the peer does not hold the job's secret");
    std::memcpy(other->data(), theirs.uuid, other->size());
    return {};
}

Status exchange_attach(int socket, const AttachInfo& mine, AttachInfo* theirs, int64_t deadline_ns) {
    AttachWire wire{mine.segment_bytes, mine.heap_bytes, mine.ring_offset, mine.ring_bytes, mine.pid};
    iovec vector{&wire, sizeof wire};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof mine.fds)] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof mine.fds);
    std::memcpy(CMSG_DATA(c), mine.fds, sizeof mine.fds);
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != ssize_t(sizeof wire))
        return failed(std::strerror(errno));

    COLLECTIVES_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline_ns));
    message.msg_controllen = sizeof control;
    ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    c = n == ssize_t(sizeof wire) ? CMSG_FIRSTHDR(&message) : nullptr;
    if (c == nullptr || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof mine.fds))
        return failed("no descriptors came");
    *theirs = {wire.segment_bytes, wire.heap_bytes, wire.ring_offset, wire.ring_bytes, wire.pid, {}};
    std::memcpy(theirs->fds, CMSG_DATA(c), sizeof theirs->fds);
    return {};
}

Status confirm_attach(int socket, bool good, int64_t deadline_ns) {
    char own = good ? 1 : 0, other = 0;
    COLLECTIVES_RETURN_IF_ERROR(send_record(socket, &own, 1));
    COLLECTIVES_RETURN_IF_ERROR(receive_record(socket, &other, 1, deadline_ns));
    return good && other == 1 ? Status() : failed("a side could not map the other's memory");
}

} // namespace collectives
