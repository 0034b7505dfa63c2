// Status: the one way in which the core reports failure. No exception crosses the core; bindings turn a Status into one.
// May be included by everything; includes nothing of ours.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace collectives {

enum class Code : uint8_t {
    ok,
    invalid_argument, // the caller's arguments are wrong on this rank (ValueError)
    unsupported,      // a combination that the library refuses (ValueError)
    mismatch,         // ranks called different operations
    timeout,          // the deadline passed
    peer_failed,      // a peer died, left, or reported a failure
    aborted,          // abort() was called
    interrupted,      // a signal handler asked to stop (Ctrl-C)
    closed,           // the communicator was closed or the process forked
    internal,         // an invariant broke or the system refused a resource
};

const char* code_name(Code code);

/// Success costs one null pointer; a failure carries a code and a message for the user. Cheap to copy.
class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(Code code, std::string message) : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

    bool ok() const { return rep_ == nullptr; }
    Code code() const { return rep_ ? rep_->code : Code::ok; }
    const std::string& message() const;

  private:
    struct Rep {
        Code code;
        std::string message;
    };
    std::shared_ptr<const Rep> rep_;
};

} // namespace collectives

#define COLLECTIVES_RETURN_IF_ERROR(expression)                                                                        \
    do {                                                                                                               \
        if (::collectives::Status status_ = (expression); !status_.ok())                                               \
            return status_;                                                                                            \
    } while (0)
