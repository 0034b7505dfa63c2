// Profiles as text and as files. See link_profile.h.
#include "engine/link_profile.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace collectives {
namespace {

constexpr char kFirstLine[] = "collectives-links 1";

void write_level(std::ostringstream& out, const char* level, const LevelProfile& profile) {
    const LinkCosts& c = profile.costs;
    out << level << " costs " << c.call_ns << ' ' << c.latency_ns << ' ' << c.frame_ns << ' ' << c.reduce_byte_ns << ' '
        << c.copy_byte_ns;
    for (double ns : c.port_ns) out << ' ' << ns;
    out << '\n';
    for (auto& [name, correction] : profile.corrections)
        for (auto& [bytes, factor] : correction.points())
            out << level << " factor " << name << ' ' << bytes << ' ' << factor << '\n';
}

bool read_line(std::istringstream& in, LevelProfile* level) {
    std::string what, name;
    LinkCosts& c = level->costs;
    in >> what;
    if (what == "costs") {
        in >> c.call_ns >> c.latency_ns >> c.frame_ns >> c.reduce_byte_ns >> c.copy_byte_ns;
        for (double& ns : c.port_ns) in >> ns;
        bool sane = !in.fail();
        for (double ns : {c.call_ns, c.latency_ns, c.frame_ns, c.reduce_byte_ns, c.copy_byte_ns})
            sane = sane && ns >= 0 && ns < 1e12;
        for (double ns : c.port_ns) sane = sane && ns >= 0 && ns < 1e12;
        return sane;
    }
    int64_t bytes = 0;
    double factor = 0;
    in >> name >> bytes >> factor;
    if (what != "factor" || in.fail() || bytes < 1 || !(factor > 0.001 && factor < 1000))
        return false;
    level->corrections[name].set(bytes, factor);
    return true;
}

/// Of a name, what may stand in that of a file.
std::string plain(std::string name) {
    for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_')
            c = '_';
    return name;
}

} // namespace

double Correction::at(int64_t bytes) const {
    if (points_.empty())
        return 1;
    auto above = points_.lower_bound(bytes);
    if (above == points_.begin())
        return above->second;
    auto below = std::prev(above);
    if (above == points_.end())
        return below->second;
    double t = std::log(double(bytes) / double(below->first)) / std::log(double(above->first) / double(below->first));
    return below->second * std::pow(above->second / below->second, t);
}

std::string LinkProfile::text() const {
    std::ostringstream out;
    out.precision(6);
    out << kFirstLine << '\n' << "origin " << origin << '\n';
    write_level(out, "flat", flat);
    write_level(out, "lanes", lanes);
    return out.str();
}

Status LinkProfile::parse(const std::string& text, LinkProfile* out) {
    std::istringstream lines(text);
    std::string line;
    *out = LinkProfile{};
    auto wrong = [&] {
        return Status(Code::invalid_argument, "a profile of links: '" + line.substr(0, 80) + "' is not understood");
    };
    if (!std::getline(lines, line) || line != kFirstLine)
        return wrong();
    while (std::getline(lines, line)) {
        std::istringstream in(line);
        std::string level;
        in >> level;
        if (level == "origin")
            in >> out->origin;
        else if ((level != "flat" && level != "lanes") || !read_line(in, level == "flat" ? &out->flat : &out->lanes))
            return wrong();
    }
    return {};
}

std::string profile_path(const std::string& folder, const std::string& host, const std::string& interface,
                         const std::vector<int>& ranks_of_hosts) {
    if (folder.empty())
        return "";
    std::string shape;
    bool alike = true;
    for (int n : ranks_of_hosts) alike = alike && n == ranks_of_hosts[0];
    if (alike)
        shape = std::to_string(ranks_of_hosts.size()) + "x" + std::to_string(ranks_of_hosts[0]);
    else
        for (int n : ranks_of_hosts) shape += (shape.empty() ? "" : "_") + std::to_string(n);
    return folder + "/" + plain(host) + "-" + plain(interface) + "-" + shape + ".links";
}

std::string read_profile(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    if (path.empty() || !in)
        return "";
    text << in.rdbuf();
    return text.str();
}

/// Into a file beside it first: whoever reads meanwhile finds the old one or the new one.
Status write_profile(const std::string& path, const std::string& text) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const std::string beside = path + "." + std::to_string(getpid());
    std::ofstream out(beside);
    out << text;
    out.close();
    if (!out || std::rename(beside.c_str(), path.c_str()) != 0)
        return Status(Code::internal, "cannot write " + path + ": " + std::strerror(errno));
    return {};
}

} // namespace collectives
