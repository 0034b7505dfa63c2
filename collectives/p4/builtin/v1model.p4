// The architecture of BMv2's simple_switch, as far as the interpreter runs it. Built into the interpreter.
#include <core.p4>

match_kind { range, optional }

struct standard_metadata_t {
    bit<9>  ingress_port;
    bit<9>  egress_spec;
    bit<9>  egress_port;
    bit<32> instance_type;
    bit<32> packet_length;
    bit<32> enq_timestamp;
    bit<19> enq_qdepth;
    bit<32> deq_timedelta;
    bit<19> deq_qdepth;
    bit<48> ingress_global_timestamp;
    bit<48> egress_global_timestamp;
    bit<16> mcast_grp;
    bit<16> egress_rid;
    bit<1>  checksum_error;
    error   parser_error;
    bit<3>  priority;
}

enum CounterType { packets, bytes, packets_and_bytes }
enum HashAlgorithm { crc32, crc32_custom, crc16, crc16_custom, random, identity, csum16, xor16 }

extern counter {
    counter(bit<32> size, CounterType type);
    void count(in bit<32> index);
}

extern direct_counter {
    direct_counter(CounterType type);
    void count();
}

extern register<T> {
    register(bit<32> size);
    void read(out T value, in bit<32> index);
    void write(in bit<32> index, in T value);
}

extern void random<T>(out T value, in T low, in T high);
extern void hash<O, T, D, M>(out O value, in HashAlgorithm algorithm, in T base, in D data, in M max);
extern void mark_to_drop(inout standard_metadata_t standard_metadata);
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algorithm);
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algorithm);
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algorithm);
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algorithm);
extern void truncate(in bit<32> length);
extern void assert(in bool check);
extern void assume(in bool check);
extern void log_msg(string text);
extern void log_msg<T>(string text, in T data);

parser Parser<H, M>(packet_in packet, out H headers, inout M meta, inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H headers, inout M meta);
control Ingress<H, M>(inout H headers, inout M meta, inout standard_metadata_t standard_metadata);
control Egress<H, M>(inout H headers, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H headers, inout M meta);
control Deparser<H>(packet_out packet, in H headers);

package V1Switch<H, M>(
    Parser<H, M> parser_,
    VerifyChecksum<H, M> verify_,
    Ingress<H, M> ingress_,
    Egress<H, M> egress_,
    ComputeChecksum<H, M> compute_,
    Deparser<H> deparser_);
