// Finding tensors that share memory. See tensor_overlap.h.
#include "bindings/tensor_overlap.h"

#include <algorithm>
#include <cstdint>

namespace collectives {
namespace {

/// The addresses from a tensor's first byte to behind its last one.
struct Span {
    uintptr_t begin, end;
    size_t index;
};

Span span_of(const at::Tensor& tensor, size_t index) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    uintptr_t last = begin;
    for (int64_t d = 0; d < tensor.dim(); ++d)
        last += static_cast<uintptr_t>((tensor.size(d) - 1) * tensor.stride(d)) * tensor.element_size();
    return {begin, last + tensor.element_size(), index};
}

/// Calls visit(address) for every element, until it returns true.
template <class Visit> bool any_element(const at::Tensor& tensor, Visit visit) {
    std::vector<int64_t> at(static_cast<size_t>(tensor.dim()), 0);
    auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    const auto step = [&](int64_t d) { return static_cast<uintptr_t>(tensor.stride(d)) * tensor.element_size(); };
    for (int64_t left = tensor.numel(); left > 0; --left) {
        if (visit(address))
            return true;
        for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
            const auto place = static_cast<size_t>(d);
            address += step(d);
            if (++at[place] < tensor.size(d))
                break;
            address -= step(d) * static_cast<uintptr_t>(tensor.size(d));
            at[place] = 0;
        }
    }
    return false;
}

bool share_an_element(const at::Tensor& a, const Span& span_a, const at::Tensor& b, const Span& span_b) {
    if (a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense())
        return true; // both fill their spans
    const uintptr_t begin = std::max(span_a.begin, span_b.begin), end = std::min(span_a.end, span_b.end);
    const auto width = static_cast<uintptr_t>(a.element_size());
    std::vector<bool> taken(end - begin); // by a byte of `a`
    any_element(a, [&](uintptr_t address) {
        for (uintptr_t byte = std::max(address, begin); byte < std::min(address + width, end); ++byte)
            taken[byte - begin] = true;
        return false;
    });
    return any_element(b, [&](uintptr_t address) {
        for (uintptr_t byte = std::max(address, begin); byte < std::min(address + width, end); ++byte)
            if (taken[byte - begin])
                return true;
        return false;
    });
}

} // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<at::Tensor>& tensors) {
    std::vector<Span> spans;
    spans.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
        if (tensors[i].numel() > 0)
            spans.push_back(span_of(tensors[i], i));
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < spans.size(); ++i)
        for (size_t j = i + 1; j < spans.size() && spans[j].begin < spans[i].end; ++j)
            if (share_an_element(tensors[spans[i].index], spans[i], tensors[spans[j].index], spans[j]))
                return std::minmax({spans[i].index, spans[j].index});
    return std::nullopt;
}

} // namespace collectives
