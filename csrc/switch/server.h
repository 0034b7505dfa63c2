// SwitchServer: the software switch on real sockets. A thread of its own takes packets by the batch, hands them to the
// pipeline, and sends what it says; other threads admit jobs and look at counters between two batches. Nothing is allocated
// for a packet. Linux. Used by the bindings and the benchmark; includes wire and base.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/datagrams.h"
#include "switch/pipeline.h"

namespace collectives::aggregation {

struct ServerOptions {
    int64_t pool_bytes = int64_t(64) << 20;
    int batch = 64; // packets a system call
    DatagramOptions datagrams;
};

class SwitchServer {
  public:
    /// Binds to each address (never all of the host's) and starts the thread. Errors: as DatagramSocket::open.
    static Status start(const std::vector<IpPort>& addresses, const ServerOptions& options,
                        std::unique_ptr<SwitchServer>* out);
    ~SwitchServer(); // ends the thread, and closes the sockets

    /// With the ports that they got.
    const std::vector<IpPort>& addresses() const { return addresses_; }

    /// As those of SwitchPipeline; any thread.
    Status admit(const Admission& admission);
    bool release(uint32_t job);
    /// Shows the pipeline as it is between two batches; `look` must be short: packets wait for it.
    void look(const std::function<void(const SwitchPipeline&)>& look) const;

    /// Replies that the sockets did not take: the workers ask again.
    uint64_t not_sent() const { return not_sent_.load(std::memory_order_relaxed); }

  private:
    struct Door { // one socket
        Door(DatagramSocket opened, int batch);
        DatagramSocket socket;
        DatagramReceiver receiver;
        DatagramSender sender;
    };

    explicit SwitchServer(const ServerOptions& options);
    Status open(const std::vector<IpPort>& addresses);
    void run();
    bool serve(int door);
    uint8_t* place_of(size_t reply);
    void answer();
    void flush();
    std::unique_lock<std::mutex> enter() const;

    const ServerOptions options_;
    std::vector<std::unique_ptr<Door>> doors_;
    std::vector<IpPort> addresses_;
    mutable std::mutex mutex_; // of the pipeline
    mutable std::atomic<int> visitors_{0};
    SwitchPipeline pipeline_;
    std::vector<uint8_t> replies_; // the bytes of those that wait
    std::vector<Reply> waiting_;   // for the end of the batch
    std::atomic<uint64_t> not_sent_{0};
    std::atomic<bool> closing_{false};
    int wake_ = -1; // eventfd
    std::thread thread_;
};

} // namespace collectives::aggregation
