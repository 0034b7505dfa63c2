// collectives_simulation: runs simulations of seeds from --first on, or one with --seed, and prints how to replay those
// that fail.
//
//   collectives_simulation [--first N] [--seeds N | --minutes M | --seed N] [--scale K] [--verbose]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "script.h"
#include "simulation.h"

using namespace collectives;

namespace {

struct Arguments {
    uint64_t first = 1;
    int64_t seeds = 100;
    double minutes = 0;
    bool verbose = false;
    sim::Settings settings;
};

bool parse(int argc, char** argv, Arguments* out) {
    for (int i = 1; i < argc; ++i) {
        const char* name = argv[i];
        if (std::strcmp(name, "--verbose") == 0) {
            out->verbose = true;
            continue;
        }
        if (i + 1 >= argc)
            return false;
        const char* value = argv[++i];
        if (std::strcmp(name, "--first") == 0)
            out->first = std::strtoull(value, nullptr, 10);
        else if (std::strcmp(name, "--seeds") == 0)
            out->seeds = std::strtoll(value, nullptr, 10);
        else if (std::strcmp(name, "--minutes") == 0)
            out->minutes = std::strtod(value, nullptr);
        else if (std::strcmp(name, "--scale") == 0)
            out->settings.scale = std::strtoll(value, nullptr, 10);
        else if (std::strcmp(name, "--seed") == 0) {
            out->first = std::strtoull(value, nullptr, 10);
            out->seeds = 1;
            out->verbose = true;
        } else
            return false;
    }
    return true;
}

void print_script(uint64_t seed) {
    sim::Script script = sim::make_script(seed);
    std::printf("%s\n", sim::text_of(script).c_str());
    for (size_t i = 0; i < script.actions.size(); ++i)
        std::printf("  %zu, %s\n", i, sim::text_of(script.actions[i]).c_str());
}

} // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    arguments.settings.scale = sim::default_scale();
    arguments.settings.replay = std::string(argv[0]) + " --seed ";
    if (!parse(argc, argv, &arguments)) {
        std::fprintf(stderr, "usage: %s [--first N] [--seeds N | --minutes M | --seed N] [--scale K] [--verbose]\n",
                     argv[0]);
        return 2;
    }
    const int64_t end = arguments.minutes > 0 ? monotonic_ns() + int64_t(arguments.minutes * 60e9) : kForever;
    int64_t run = 0, failed = 0;
    sim::Tally tally;
    for (; arguments.minutes > 0 ? monotonic_ns() < end : run < arguments.seeds; ++run) {
        const uint64_t seed = arguments.first + uint64_t(run);
        if (arguments.verbose)
            print_script(seed);
        if (std::string wrong = sim::simulate(seed, arguments.settings, &tally); !wrong.empty()) {
            ++failed;
            std::printf("%s\nreplay: %s%llu\n", wrong.c_str(), arguments.settings.replay.c_str(),
                        static_cast<unsigned long long>(seed));
            std::fflush(stdout);
        }
    }
    std::printf("%lld simulations, %lld failed: %lld results compared, %lld errors judged, %lld deaths seen and %lld "
                "silent, %lld ranks went on without the dead\n",
                static_cast<long long>(run), static_cast<long long>(failed), static_cast<long long>(tally.results),
                static_cast<long long>(tally.errors), static_cast<long long>(tally.deaths),
                static_cast<long long>(tally.silent_deaths), static_cast<long long>(tally.shrinks));
    return failed == 0 ? 0 : 1;
}
