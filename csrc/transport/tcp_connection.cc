// Handshake, reading and writing of frames. See tcp_connection.h.
#include "transport/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "transport/tcp_socket.h"

namespace collectives {
namespace {

constexpr char kMagic[8] = {'c', 'o', 'l', 'l', 't', 'c', 'p', '1'};
constexpr size_t kHeader = sizeof(wire::FrameHeader);
constexpr size_t kBufferBytes = 128 << 10;
constexpr int kMostPieces = 32; // of one writev
constexpr uint64_t kLargeFrame = 16 << 10;
constexpr size_t kAheadBytes = 4 << 10;
constexpr uint64_t kWakeBytes = 64 << 10; // of a large payload that are worth a wake-up, a read and an acknowledgement
constexpr size_t kMostSpareFrames = 64, kMostSpareBytes = 16 << 10;

} // namespace

OutFrame* FramePool::take(size_t payload_bytes) {
    OutFrame* frame;
    if (spare_.empty()) {
        frame = new OutFrame();
    } else {
        frame = spare_.back().release();
        spare_.pop_back();
        frame->header = {};
        frame->next = nullptr;
        frame->done_bytes = 0;
    }
    frame->own_payload.resize(payload_bytes);
    frame->payload = frame->own_payload.data();
    return frame;
}

void FramePool::give(OutFrame* frame) {
    std::unique_ptr<OutFrame> mine(frame);
    if (spare_.size() < kMostSpareFrames && mine->own_payload.capacity() <= kMostSpareBytes)
        spare_.push_back(std::move(mine));
}

TcpConnection::TcpConnection(int fd, bool acceptor, int lane, const Uuid& own, std::string key, int64_t deadline_ns,
                             FramePool* pool)
    : fd_(fd), pool_(pool), acceptor_(acceptor), lane_(lane), stage_(acceptor ? Stage::greeting : Stage::connecting),
      deadline_ns_(deadline_ns), key_(std::move(key)) {
    std::memcpy(own_.magic, kMagic, sizeof kMagic);
    std::memcpy(own_.uuid, own.data(), own.size());
    own_.lane = uint8_t(lane);
    if (getrandom(own_.nonce, sizeof own_.nonce, 0) != ssize_t(sizeof own_.nonce))
        kill("the system gives no random bytes");
}

TcpConnection::~TcpConnection() { kill("closed"); }

void TcpConnection::kill(const std::string& why) {
    if (fd_ >= 0)
        close(fd_);
    fd_ = -1;
    if (stage_ != Stage::dead)
        why_ = why;
    stage_ = Stage::dead;
    for (OutFrame* frame = first_; frame != nullptr;) {
        OutFrame* next = frame->next;
        if (frame->owner == nullptr)
            pool_->give(frame);
        frame = next;
    }
    first_ = last_ = nullptr;
    queued_bytes_ = 0;
}

// ---- the proof: greetings and MACs over both, the acceptor's with its greeting ----

bool TcpConnection::send_all(const void* data, size_t bytes) {
    // A new socket has room for a hundred bytes: a short write means that it is broken.
    if (send(fd_, data, bytes, MSG_NOSIGNAL) == ssize_t(bytes))
        return true;
    kill(std::string("handshake: ") + std::strerror(errno));
    return false;
}

/// Takes exactly so many bytes once they are all there; leaves less in the socket.
bool TcpConnection::take(void* data, size_t bytes) {
    ssize_t n = recv(fd_, data, bytes, MSG_PEEK);
    if (n == ssize_t(bytes))
        return recv(fd_, data, bytes, 0) == n;
    if (n == 0)
        kill("handshake: the other side closed the connection");
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        kill(std::string("handshake: ") + std::strerror(errno));
    else
        readable = false;
    return false;
}

void TcpConnection::mac(char role, const Greeting& prover, const Greeting& verifier, uint8_t* out) const {
    std::string text = std::string("collectives tcp ") + role;
    text.append(reinterpret_cast<const char*>(&prover), sizeof prover);
    text.append(reinterpret_cast<const char*>(&verifier), sizeof verifier);
    unsigned length = kMacBytes;
    HMAC(EVP_sha256(), key_.data(), int(key_.size()), reinterpret_cast<const uint8_t*>(text.data()), text.size(), out,
         &length);
}

bool TcpConnection::greet() { // the connector
    if (int error = connect_result(fd_); error != 0) {
        kill(error == ECONNREFUSED ? "connection refused: nobody listens there any more" : std::strerror(error));
        return true;
    }
    if (send_all(&own_, sizeof own_))
        stage_ = Stage::greeting;
    return true;
}

bool TcpConnection::answer() { // the acceptor
    if (!take(&theirs_, sizeof theirs_))
        return stage_ == Stage::dead;
    if (std::memcmp(theirs_.magic, kMagic, sizeof kMagic) != 0) {
        kill("handshake: bytes of another protocol");
        return true;
    }
    lane_ = own_.lane = theirs_.lane;
    uint8_t reply[sizeof own_ + kMacBytes];
    std::memcpy(reply, &own_, sizeof own_);
    mac('A', own_, theirs_, reply + sizeof own_);
    if (send_all(reply, sizeof reply))
        stage_ = Stage::proving;
    return true;
}

bool TcpConnection::check_answer() { // the connector
    uint8_t reply[sizeof theirs_ + kMacBytes], expected[kMacBytes], proof[kMacBytes];
    if (!take(reply, sizeof reply))
        return stage_ == Stage::dead;
    std::memcpy(&theirs_, reply, sizeof theirs_);
    mac('A', theirs_, own_, expected);
    if (std::memcmp(theirs_.magic, kMagic, sizeof kMagic) != 0 ||
        CRYPTO_memcmp(expected, reply + sizeof theirs_, kMacBytes) != 0) {
        kill("handshake: who listens there does not hold the job's secret");
        return true;
    }
    mac('C', own_, theirs_, proof);
    if (send_all(proof, sizeof proof))
        open();
    return true;
}

bool TcpConnection::check_proof() { // the acceptor
    uint8_t proof[kMacBytes], expected[kMacBytes];
    if (!take(proof, sizeof proof))
        return stage_ == Stage::dead;
    mac('C', theirs_, own_, expected);
    if (CRYPTO_memcmp(expected, proof, kMacBytes) != 0)
        kill("handshake: the other side does not hold the job's secret");
    else
        open();
    return true;
}

void TcpConnection::open() {
    std::memcpy(peer_.data(), theirs_.uuid, peer_.size());
    if (acceptor_)
        in_.resize(kBufferBytes);
    stage_ = Stage::open;
}

bool TcpConnection::shake_hands() {
    bool moved = false;
    for (;;) {
        bool step = false;
        switch (stage_) {
        case Stage::connecting: step = writable && greet(); break;
        case Stage::greeting: step = readable && (acceptor_ ? answer() : check_answer()); break;
        case Stage::proving: step = readable && check_proof(); break;
        case Stage::open:
        case Stage::dead: return moved;
        }
        if (!step)
            return moved;
        moved = true;
    }
}

// ---- reading ----

bool TcpConnection::read_failed(long n) {
    if (n == 0)
        kill("the connection was closed");
    else if (errno == EAGAIN)
        readable = false;
    else if (errno != EINTR)
        kill(std::strerror(errno));
    return false;
}

/// One read: the rest of a payload straight to its place, and whatever follows into the buffer. False: nothing came.
bool TcpConnection::fill() {
    if (begin_ == end_)
        begin_ = end_ = 0;
    if (begin_ > 0 && in_.size() - end_ < kBufferBytes / 2) {
        std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    uint64_t left = in_payload_ ? header_.length - arrived_bytes_ : 0;
    bool direct = in_payload_ && place_ != nullptr && begin_ == end_;
    iovec parts[2];
    int n_parts = 0;
    if (direct)
        parts[n_parts++] = {place_ + arrived_bytes_, size_t(left)};
    // What follows a large frame is most likely another one: its header, and its payload to its own place.
    size_t ahead = direct || header_.length >= kLargeFrame ? kAheadBytes : kBufferBytes;
    parts[n_parts++] = {in_.data() + end_, std::min(ahead, in_.size() - end_)};
    size_t room = 0;
    for (int i = 0; i < n_parts; ++i) room += parts[i].iov_len;
    ssize_t n = readv(fd_, parts, n_parts);
    if (n <= 0)
        return read_failed(n);
    if (size_t(n) < room && !ending)
        readable = false; // that was all; whatever comes later is an event of its own
    uint64_t straight = direct ? std::min<uint64_t>(left, uint64_t(n)) : 0;
    arrived_bytes_ += straight;
    end_ += size_t(n) - straight;
    return true;
}

/// Nothing is left to read: how much must come before the system says that something has. In the midst of a large payload,
/// a good part of it: on a slow link a reader would else be woken for every packet. It never exceeds what must come.
void TcpConnection::set_low_water() {
    uint64_t left = in_payload_ ? header_.length - arrived_bytes_ : 1;
    const bool large = in_payload_ && header_.length >= 2 * kWakeBytes;
    const int wanted = large && left > 0 ? int(std::min(left, kWakeBytes)) : 1;
    if (wanted == low_water_)
        return;
    low_water_ = wanted;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted); // and rings at once if that much is there
}

bool TcpConnection::begin_frame(TcpLink& link, FrameSink& sink) {
    if (end_ - begin_ < kHeader)
        return false;
    std::memcpy(&header_, in_.data() + begin_, kHeader);
    if (const char* wrong = wire::check_frame(header_)) {
        kill(std::string("it sent ") + wrong);
        return false;
    }
    if (header_.kind != wire::FrameKind::data) {
        if (header_.length > kBufferBytes / 2 - kHeader) {
            kill("it sent a notice that is too long");
            return false;
        }
        if (end_ - begin_ < kHeader + header_.length)
            return false;
        stalled = !sink.notice(link, header_, in_.data() + begin_ + kHeader);
        if (!stalled)
            begin_ += kHeader + header_.length;
        return !stalled;
    }
    Landing landing = sink.land(link, header_);
    stalled = landing.kind == Landing::later;
    if (stalled)
        return false;
    begin_ += kHeader;
    in_payload_ = true;
    place_ = landing.kind == Landing::place ? landing.data : nullptr;
    arrived_bytes_ = 0;
    return true;
}

void TcpConnection::end_payload(TcpLink& link, FrameSink& sink) {
    in_payload_ = false;
    sink.landed(link, header_, place_);
}

/// Makes of the buffer what can be made. True: something moved.
bool TcpConnection::parse(TcpLink& link, FrameSink& sink) {
    bool moved = false;
    while (stage_ == Stage::open) {
        if (!in_payload_) {
            if (!begin_frame(link, sink))
                return moved;
            moved = true;
            continue;
        }
        uint64_t n = std::min<uint64_t>(header_.length - arrived_bytes_, end_ - begin_);
        if (n > 0 && place_ != nullptr)
            std::memcpy(place_ + arrived_bytes_, in_.data() + begin_, n);
        begin_ += n;
        arrived_bytes_ += n;
        if (arrived_bytes_ < header_.length)
            return true;
        end_payload(link, sink);
        moved = true;
    }
    return moved;
}

bool TcpConnection::receive(TcpLink& link, FrameSink& sink, int64_t most_bytes) {
    bool moved = parse(link, sink); // a frame that had to wait
    for (int64_t read = 0; stage_ == Stage::open && readable && !stalled && read < most_bytes;) {
        uint64_t before = arrived_bytes_ + (end_ - begin_);
        if (!fill())
            break;
        moved = true;
        read += int64_t(arrived_bytes_ + (end_ - begin_) - before);
        parse(link, sink);
    }
    if (!readable && stage_ == Stage::open)
        set_low_water();
    return moved;
}

void TcpConnection::forget_place(const uint8_t* begin, const uint8_t* end) {
    if (in_payload_ && place_ >= begin && place_ < end)
        place_ = nullptr;
}

// ---- writing ----

void TcpConnection::push(OutFrame* frame) {
    frame->next = nullptr;
    frame->done_bytes = 0;
    (first_ == nullptr ? first_ : last_->next) = frame;
    last_ = frame;
    queued_bytes_ += int64_t(kHeader + frame->header.length);
}

void TcpConnection::finished(OutFrame* frame) {
    if (frame->owner != nullptr)
        frame->owner->frame_sent(*frame);
    else
        pool_->give(frame);
}

bool TcpConnection::flush() {
    bool moved = false;
    while (stage_ == Stage::open && writable && first_ != nullptr) {
        iovec parts[kMostPieces];
        int n_parts = 0;
        for (OutFrame* f = first_; f != nullptr && n_parts + 2 <= kMostPieces; f = f->next) {
            int64_t done = f->done_bytes, header = int64_t(kHeader);
            if (done < header)
                parts[n_parts++] = {reinterpret_cast<uint8_t*>(&f->header) + done, size_t(header - done)};
            int64_t at = std::max<int64_t>(0, done - header);
            if (at < int64_t(f->header.length))
                parts[n_parts++] = {const_cast<uint8_t*>(f->payload) + at, size_t(int64_t(f->header.length) - at)};
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = size_t(n_parts);
        ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN)
                writable = false;
            else if (errno != EINTR)
                kill(std::strerror(errno));
            continue;
        }
        moved = true;
        queued_bytes_ -= n;
        while (first_ != nullptr) {
            int64_t whole = int64_t(kHeader + first_->header.length),
                    step = std::min<int64_t>(n, whole - first_->done_bytes);
            first_->done_bytes += step;
            n -= step;
            if (first_->done_bytes < whole)
                break;
            OutFrame* frame = first_;
            first_ = frame->next;
            if (first_ == nullptr)
                last_ = nullptr;
            finished(frame);
        }
    }
    return moved;
}

void TcpConnection::withdraw(const FrameOwner* owner) {
    OutFrame* kept_first = nullptr;
    OutFrame* kept_last = nullptr;
    for (OutFrame* frame = first_; frame != nullptr;) {
        OutFrame* next = frame->next;
        OutFrame* keep = frame;
        if (frame->owner == owner && frame->done_bytes == 0) {
            queued_bytes_ -= int64_t(kHeader + frame->header.length);
            keep = nullptr;
        } else if (frame->owner == owner) { // the other side has read its header: the bytes must come
            keep = pool_->take(size_t(frame->header.length));
            keep->header = frame->header;
            keep->done_bytes = frame->done_bytes;
            if (frame->header.length > 0)
                std::memcpy(keep->own_payload.data(), frame->payload, size_t(frame->header.length));
        }
        if (keep != nullptr) {
            keep->next = nullptr;
            (kept_first == nullptr ? kept_first : kept_last->next) = keep;
            kept_last = keep;
        }
        frame = next;
    }
    first_ = kept_first;
    last_ = kept_last;
}

} // namespace collectives
