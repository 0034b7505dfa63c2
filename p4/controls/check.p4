// Row 1 of the protocol's table: is it an update, whole and not a byte longer?
//
// Three lengths must agree (the frame's, IP's and UDP's): a reply is made of the packet that caused it, so bytes behind
// the lanes would be sent to everybody. Frames of ours are longer than Ethernet's least, so there is never padding.
//
// The IPv4 header's checksum is checked, UDP's is not: between machines whose network card fills it in, a frame that is
// caught on its way (on a veth pair, which is how BMv2 is tried) does not have it yet. Ethernet has its own.

control Check(inout headers_t hdr, inout metadata_t meta, in bit<32> frame_bytes, in bit<1> checksum_error) {
    apply {
        if (!hdr.lanes.isValid() || checksum_error != 0 || frame_bytes != FRAME_BYTES
            || hdr.ipv4.total_bytes != IPV4_BYTES + UDP_BYTES || hdr.udp.total_bytes != UDP_BYTES) {
            meta.verdict = MALFORMED;
        }
    }
}
