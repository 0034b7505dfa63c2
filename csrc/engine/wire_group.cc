// Members, failures and early frames of groups between hosts; the way of a frame to its group. See wire_group.h.
#include "engine/wire_group.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "engine/rank_name.h"
#include "engine/wire_operation.h"

namespace collectives {
namespace {

constexpr int64_t kMostUnknownBytes = 16 << 20; // of groups that have not formed here
constexpr size_t kForgottenGroups = 1024;
constexpr int64_t kNoticeNs = 2 * kSecond; // patience with a connection that is made to tell of a failure

} // namespace

// ---- the group ----

WireGroup::WireGroup(WireHub& hub, const CommunicatorConfig& config, uint64_t id, std::vector<WireMember> members)
    : hub_(hub), rank_(config.rank), name_(config.name), id_(id), shown_ranks_(config.shown_ranks),
      global_ranks_(config.global_ranks), members_(std::move(members)) {}

WireGroup::~WireGroup() {
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    hub_.forget(id_);
}

std::string WireGroup::name_of(int q) const {
    const WireMember& m = members_[size_t(q)];
    return rank_name(q, shown_ranks_, global_ranks_, m.pid, m.host);
}

int WireGroup::dead_member() const {
    for (int q = 0; q < size(); ++q)
        if (is_dead(q))
            return q;
    return -1;
}

Status WireGroup::known_failure(int* culprit) {
    if (*culprit = dead_member(); *culprit >= 0) {
        std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
        return Status(Code::peer_failed,
                      name_of(*culprit) + " died (" + members_[size_t(*culprit)].link->why_lost() + ")");
    }
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    for (int q = 0; q < size(); ++q) {
        const WireMember& m = members_[size_t(q)];
        if (m.failure == Code::ok || m.failure == Code::closed)
            continue;
        if (operation_ != nullptr && operation_->active() && m.ended_after >= operation_->sequence())
            continue; // it failed in a later one: it has sent all that it owed this one, which can end as it ended there
        *culprit = m.culprit;
        const bool same_here = m.failure == Code::mismatch || m.failure == Code::timeout; // of the group, as in Group
        return Status(same_here ? m.failure : Code::peer_failed, name_of(q) + " failed: " + m.failure_text);
    }
    return {};
}

Status WireGroup::peer_trouble(int* culprit) {
    COLLECTIVES_RETURN_IF_ERROR(known_failure(culprit));
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    if (operation_ == nullptr || !operation_->active())
        return {};
    for (int q : operation_->missing_ranks()) {
        const WireMember& m = members_[size_t(q)];
        *culprit = q;
        if (m.failure == Code::closed && m.ended_after < operation_->sequence())
            return Status(Code::peer_failed, name_of(q) + " has closed the group");
        if (m.link->left() && m.link->lost()) // all that it sent has been read
            return Status(Code::peer_failed, name_of(q) + " has exited");
    }
    return {};
}

void WireGroup::publish_failure(Code code, int culprit, const std::string& text) {
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    if (failure_published_)
        return;
    failure_published_ = true;
    const std::string told = told_to_peers(text, name_, name_of(rank_));
    wire::FrameHeader header;
    header.kind = code == Code::closed ? wire::FrameKind::closed : wire::FrameKind::failed;
    header.group = id_;
    header.source = uint32_t(rank_);
    header.what = uint64_t(code);
    header.count = culprit;
    if (operation_ != nullptr) // its data may still be under way
        header.sequence = operation_->completed();
    header.length = code == Code::closed ? 0 : std::min<uint64_t>(told.size(), wire::kMaxNoticeBytes);
    for (WireMember& m : members_)
        if (m.link != nullptr && !m.link->lost() && (code != Code::closed || m.link->used()))
            hub_.mesh().post_notice(*m.link, header, told.data(), monotonic_ns() + kNoticeNs);
}

bool WireGroup::has_closed(int q) const {
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    return members_[size_t(q)].failure == Code::closed;
}

bool WireGroup::messages_waiting() {
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    for (WireMember& m : members_)
        if (m.link != nullptr && !m.link->lost() && hub_.messages().waiting(*m.link))
            return true;
    return false;
}

int WireGroup::rank_of(const TcpLink& link, const wire::FrameHeader& header) const {
    return header.source < members_.size() && members_[header.source].link == &link ? int(header.source) : -1;
}

void WireGroup::has_shown(WireMember& member, const wire::FrameHeader& header) {
    if (header.sequence <= member.begun)
        return;
    member.begun = header.sequence;
    member.shown = header;
}

int WireGroup::runs_here(uint64_t call_number, wire::FrameHeader* shown) {
    std::lock_guard<std::mutex> lock(hub_.mesh().mutex());
    for (int q = 0; q < size() && operation_ != nullptr; ++q) {
        const WireMember& m = members_[size_t(q)];
        if (m.begun <= operation_->sequence() || !WireOperation::is_call(m.shown, call_number))
            continue;
        *shown = m.shown;
        return q;
    }
    return -1;
}

Landing WireGroup::land(int q, const wire::FrameHeader& header) {
    WireMember& m = members_[size_t(q)];
    if (operation_ != nullptr && operation_->active() && header.sequence == operation_->sequence()) {
        if (m.begun < header.sequence) {
            has_shown(m, header);
            operation_->has_begun(q);
        }
        hub_.moved(this);
        return operation_->land(q, header);
    }
    has_shown(m, header);
    if (operation_ != nullptr && header.sequence <= operation_->sequence())
        return {Landing::discard, nullptr}; // of an operation that was given up
    if (header.length > uint64_t(kEagerBytes))
        return {Landing::later, nullptr};
    std::vector<uint8_t> buffer(size_t(header.length) + 1);
    uint8_t* data = buffer.data();
    arriving_[data] = std::move(buffer);
    return {Landing::place, data};
}

void WireGroup::landed(int q, const wire::FrameHeader& header, uint8_t* data) {
    hub_.moved(this);
    auto it = arriving_.find(data);
    if (it == arriving_.end()) {
        if (data != nullptr && operation_ != nullptr && operation_->active() &&
            header.sequence == operation_->sequence())
            operation_->landed(q, header);
        return;
    }
    EarlyFrame frame{q, header, std::move(it->second)};
    arriving_.erase(it);
    take_unknown(std::move(frame));
}

/// A frame that came before it could be placed: kept, or placed now.
void WireGroup::take_unknown(EarlyFrame frame) {
    if (frame.header.kind != wire::FrameKind::data)
        return notice(frame.rank, frame.header, frame.payload.data());
    has_shown(members_[size_t(frame.rank)], frame.header);
    if (operation_ == nullptr || !operation_->active() || frame.header.sequence != operation_->sequence()) {
        early_.push_back(std::move(frame));
        return;
    }
    Landing landing = operation_->land(frame.rank, frame.header);
    if (landing.kind == Landing::later)
        early_.push_back(std::move(frame)); // WireOperation asks again when the receive is ready
    if (landing.kind != Landing::place)
        return;
    std::memcpy(landing.data, frame.payload.data(), frame.header.length);
    operation_->landed(frame.rank, frame.header);
}

std::vector<EarlyFrame> WireGroup::take_early(uint64_t sequence) {
    std::vector<EarlyFrame> taken;
    for (size_t i = 0; i < early_.size();) {
        if (early_[i].header.sequence > sequence) {
            ++i;
            continue;
        }
        if (early_[i].header.sequence == sequence)
            taken.push_back(std::move(early_[i]));
        early_.erase(early_.begin() + long(i));
    }
    return taken;
}

void WireGroup::notice(int q, const wire::FrameHeader& header, const uint8_t* payload) {
    hub_.moved(this);
    WireMember& m = members_[size_t(q)];
    switch (header.kind) {
    case wire::FrameKind::begun:
        if (m.begun < header.sequence) {
            has_shown(m, header);
            if (operation_ != nullptr && operation_->active())
                operation_->has_begun(q);
        }
        return;
    case wire::FrameKind::failed:
        m.failure = Code(header.what & 0xff);
        m.culprit = int(header.count);
        m.ended_after = header.sequence;
        m.failure_text.assign(reinterpret_cast<const char*>(payload), header.length);
        return;
    case wire::FrameKind::closed:
        if (m.failure == Code::ok) {
            m.failure = Code::closed;
            m.ended_after = header.sequence;
        }
        return;
    default: return;
    }
}

// ---- the hub ----

void WireHub::add(WireGroup& group) {
    groups_[group.id()] = &group;
    std::vector<Unknown> known;
    for (size_t i = 0; i < unknown_.size();) {
        if (unknown_[i].frame.header.group != group.id()) {
            ++i;
            continue;
        }
        known.push_back(std::move(unknown_[i]));
        unknown_.erase(unknown_.begin() + long(i));
    }
    for (Unknown& each : known) {
        unknown_bytes_ -= int64_t(each.frame.header.length);
        each.frame.rank = group.rank_of(*each.link, each.frame.header);
        if (each.frame.rank >= 0)
            group.take_unknown(std::move(each.frame));
    }
}

void WireHub::forget(uint64_t id) {
    if (groups_.erase(id) == 0)
        return;
    if (forgotten_.size() < kForgottenGroups)
        forgotten_.push_back(id);
    else
        forgotten_[next_forgotten_++ % kForgottenGroups] = id;
}

bool WireHub::was_forgotten(uint64_t id) const {
    return std::find(forgotten_.begin(), forgotten_.end(), id) != forgotten_.end();
}

void WireHub::moved(const WireGroup* group) {
    moved_many_ = moved_many_ || (moved_ != nullptr && moved_ != group);
    moved_ = group;
}

bool WireHub::others_moved(const WireGroup* mine) {
    bool others = moved_many_ || (moved_ != nullptr && moved_ != mine);
    moved_ = nullptr;
    moved_many_ = false;
    return others;
}

Landing WireHub::land(TcpLink& link, const wire::FrameHeader& header) {
    if (auto it = groups_.find(header.group); it != groups_.end()) {
        int q = it->second->rank_of(link, header);
        return q < 0 ? Landing{Landing::discard, nullptr} : it->second->land(q, header);
    }
    if (was_forgotten(header.group))
        return {Landing::discard, nullptr};
    if (header.length > uint64_t(kEagerBytes) || unknown_bytes_ + int64_t(header.length) > kMostUnknownBytes)
        return {Landing::later, nullptr};
    unknown_bytes_ += int64_t(header.length);
    std::vector<uint8_t> buffer(size_t(header.length) + 1);
    uint8_t* data = buffer.data();
    arriving_[data] = std::move(buffer);
    return {Landing::place, data};
}

void WireHub::landed(TcpLink& link, const wire::FrameHeader& header, uint8_t* data) {
    auto it = groups_.find(header.group);
    auto arrived = arriving_.find(data);
    if (arrived == arriving_.end()) {
        int q = it == groups_.end() ? -1 : it->second->rank_of(link, header);
        if (q >= 0)
            it->second->landed(q, header, data);
        return;
    }
    EarlyFrame frame{-1, header, std::move(arrived->second)};
    arriving_.erase(arrived);
    if (it == groups_.end()) {
        unknown_.push_back({&link, std::move(frame)});
        return;
    }
    unknown_bytes_ -= int64_t(header.length); // the group formed meanwhile
    frame.rank = it->second->rank_of(link, header);
    if (frame.rank >= 0)
        it->second->take_unknown(std::move(frame));
}

bool WireHub::notice(TcpLink& link, const wire::FrameHeader& header, const uint8_t* payload) {
    if (header.kind == wire::FrameKind::leaving) {
        link.set_left();
        return true;
    }
    if (header.kind == wire::FrameKind::message)
        return messages_.arrived(link, header, payload);
    auto it = groups_.find(header.group);
    if (it != groups_.end()) {
        if (int q = it->second->rank_of(link, header); q >= 0)
            it->second->notice(q, header, payload);
    } else if (!was_forgotten(header.group) && unknown_bytes_ + int64_t(header.length) <= kMostUnknownBytes) {
        unknown_bytes_ += int64_t(header.length);
        unknown_.push_back({&link, {-1, header, std::vector<uint8_t>(payload, payload + header.length)}});
    }
    return true;
}

void WireHub::lost(TcpLink& link) {
    for (auto& [id, group] : groups_)
        for (int q = 0; q < group->size(); ++q)
            if (group->member(q).link == &link)
                moved(group);
}

} // namespace collectives
