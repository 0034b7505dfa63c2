// Encoding of Hello, and the facts it carries: boot id, network namespace, random identity.
#include "transport/hello.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/segment.h"

#ifndef COLLECTIVES_VERSION
#define COLLECTIVES_VERSION "0.1.0"
#endif

namespace collectives {
namespace {

void put(std::string* out, const void* data, size_t bytes) {
    uint32_t n = uint32_t(bytes);
    out->append(reinterpret_cast<const char*>(&n), sizeof n);
    out->append(static_cast<const char*>(data), bytes);
}

bool get(std::string_view* in, std::string* out) {
    uint32_t n;
    if (in->size() < sizeof n)
        return false;
    std::memcpy(&n, in->data(), sizeof n);
    in->remove_prefix(sizeof n);
    if (in->size() < n)
        return false;
    out->assign(in->data(), n);
    in->remove_prefix(n);
    return true;
}

template <class T> bool get_value(std::string_view* in, T* out) {
    std::string bytes;
    if (!get(in, &bytes) || bytes.size() != sizeof(T))
        return false;
    std::memcpy(out, bytes.data(), sizeof(T));
    return true;
}

} // namespace

std::string Hello::encode() const {
    std::string out;
    put(&out, &wire_version, sizeof wire_version);
    put(&out, library_version.data(), library_version.size());
    put(&out, uuid.data(), uuid.size());
    put(&out, kind.data(), kind.size());
    put(&out, boot_id.data(), boot_id.size());
    put(&out, &net_namespace, sizeof net_namespace);
    put(&out, &pid, sizeof pid);
    put(&out, host.data(), host.size());
    put(&out, share.data(), share.size());
    return out;
}

Status Hello::decode(std::string_view in, Hello* out) {
    if (!get_value(&in, &out->wire_version) || !get(&in, &out->library_version))
        return Status(Code::internal, "a rank announced itself with bytes that are no hello of this library");
    if (out->wire_version != kWireVersion)
        return Status(Code::mismatch, "a rank runs collectives " + out->library_version + " (wire version " +
                                          std::to_string(out->wire_version) +
                                          "), this one " COLLECTIVES_VERSION " (wire version " +
                                          std::to_string(kWireVersion) + "): install the same version on all ranks");
    if (!get_value(&in, &out->uuid) || !get(&in, &out->kind) || !get(&in, &out->boot_id) ||
        !get_value(&in, &out->net_namespace) || !get_value(&in, &out->pid) || !get(&in, &out->host) ||
        !get(&in, &out->share))
        return Status(Code::internal, "a rank's hello is cut short");
    return {};
}

Status describe_this_process(const std::string& host, Hello* out) {
    out->wire_version = kWireVersion;
    out->library_version = COLLECTIVES_VERSION;
    char share[32];
    if (getrandom(out->uuid.data(), out->uuid.size(), 0) != ssize_t(out->uuid.size()) ||
        getrandom(share, sizeof share, 0) != ssize_t(sizeof share))
        return Status(Code::internal, std::string("getrandom failed: ") + std::strerror(errno));
    out->share.assign(share, sizeof share);
    std::ifstream("/proc/sys/kernel/random/boot_id") >> out->boot_id;
    struct stat net;
    out->net_namespace = stat("/proc/self/ns/net", &net) == 0 ? uint64_t(net.st_ino) : 0;
    out->pid = getpid();
    out->host = host;
    if (out->host.empty()) {
        char name[256] = "unknown";
        gethostname(name, sizeof name - 1);
        out->host = name;
    }
    return {};
}

std::string uuid_text(const Uuid& uuid) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (uint8_t byte : uuid) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::string why_not_local(const Hello& a, const Hello& b) {
    if (a.kind != b.kind)
        return "one uses transport " + a.kind + ", the other " + b.kind;
    if (a.boot_id != b.boot_id)
        return "they run on different machines (" + a.host + " and " + b.host + ")";
    if (a.net_namespace != b.net_namespace)
        return "they run in different network namespaces of host " + a.host;
    return "";
}

} // namespace collectives
