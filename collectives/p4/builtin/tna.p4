// The Tofino Native Architecture, as far as an aggregation program uses it: declarations to check a program against. It
// does not run here. Built into the interpreter.
#include <core.p4>

match_kind { range, optional }

error { CounterRange, Timeout, PhvOwner, MultiWrite, IbufOverflow, IbufUnderflow }

typedef bit<9>  PortId_t;
typedef bit<16> MulticastGroupId_t;
typedef bit<5>  QueueId_t;
typedef bit<10> MirrorId_t;
typedef bit<16> ReplicationId_t;

const bit<32> PORT_METADATA_SIZE = 64;

enum CounterType_t { PACKETS, BYTES, PACKETS_AND_BYTES }
enum HashAlgorithm_t { IDENTITY, RANDOM, XOR8, XOR16, XOR32, CRC8, CRC16, CRC32, CRC64, CUSTOM }

header ingress_intrinsic_metadata_t {
    bit<1>   resubmit_flag;
    bit<1>   _pad1;
    bit<2>   packet_version;
    bit<3>   _pad2;
    PortId_t ingress_port;
    bit<48>  ingress_mac_tstamp;
}

struct ingress_intrinsic_metadata_from_parser_t {
    bit<48> global_tstamp;
    bit<32> global_ver;
    bit<16> parser_err;
}

struct ingress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
    bit<3> digest_type;
    bit<3> resubmit_type;
    bit<3> mirror_type;
}

struct ingress_intrinsic_metadata_for_tm_t {
    PortId_t           ucast_egress_port;
    bit<1>             bypass_egress;
    bit<1>             deflect_on_drop;
    bit<3>             ingress_cos;
    QueueId_t          qid;
    bit<3>             icos_for_copy_to_cpu;
    bit<1>             copy_to_cpu;
    bit<2>             packet_color;
    bit<1>             disable_ucast_cutthru;
    bit<1>             enable_mcast_cutthru;
    MulticastGroupId_t mcast_grp_a;
    MulticastGroupId_t mcast_grp_b;
    bit<13>            level1_mcast_hash;
    bit<13>            level2_mcast_hash;
    bit<16>            level1_exclusion_id;
    bit<9>             level2_exclusion_id;
    bit<16>            rid;
}

header egress_intrinsic_metadata_t {
    bit<7>          _pad0;
    PortId_t        egress_port;
    bit<5>          _pad1;
    bit<19>         enq_qdepth;
    bit<6>          _pad2;
    bit<2>          enq_congest_stat;
    bit<14>         _pad3;
    bit<18>         enq_tstamp;
    bit<5>          _pad4;
    bit<19>         deq_qdepth;
    bit<6>          _pad5;
    bit<2>          deq_congest_stat;
    bit<8>          app_pool_congest_stat;
    bit<14>         _pad6;
    bit<18>         deq_timedelta;
    ReplicationId_t egress_rid;
    bit<7>          _pad7;
    bit<1>          egress_rid_first;
    bit<3>          _pad8;
    QueueId_t       egress_qid;
    bit<5>          _pad9;
    bit<3>          egress_cos;
    bit<7>          _pad10;
    bit<1>          deflection_flag;
    bit<16>         pkt_length;
}

struct egress_intrinsic_metadata_from_parser_t {
    bit<48> global_tstamp;
    bit<32> global_ver;
    bit<16> parser_err;
}

struct egress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
    bit<3> mirror_type;
    bit<1> coalesce_flush;
    bit<7> coalesce_length;
}

struct egress_intrinsic_metadata_for_output_port_t {
    bit<1> capture_tstamp_on_tx;
    bit<1> update_delay_on_tx;
    bit<1> force_tx_error;
}

extern Register<T, I> {
    Register(bit<32> size);
    Register(bit<32> size, T initial_value);
    T read(in I index);
    void write(in I index, in T value);
}

extern RegisterAction<T, I, U> {
    RegisterAction(Register<T, I> register_);
    U execute(in I index);
    abstract void apply(inout T value, @optional out U result);
}

extern DirectRegister<T> {
    DirectRegister();
    DirectRegister(T initial_value);
    T read();
    void write(in T value);
}

extern DirectRegisterAction<T, U> {
    DirectRegisterAction(DirectRegister<T> register_);
    U execute();
    abstract void apply(inout T value, @optional out U result);
}

extern Counter<W, I> {
    Counter(bit<32> size, CounterType_t type_);
    void count(in I index);
}

extern DirectCounter<W> {
    DirectCounter(CounterType_t type_);
    void count();
}

extern Hash<W> {
    Hash(HashAlgorithm_t algorithm);
    W get<D>(in D data);
}

extern Random<W> {
    Random();
    W get();
}

extern Checksum {
    Checksum();
    void add<T>(in T data);
    void subtract<T>(in T data);
    bool verify();
    bit<16> get();
    bit<16> update<T>(in T data, @optional in bool zeros_as_ones);
}

extern T max<T>(in T one, in T other);
extern T min<T>(in T one, in T other);
extern void invalidate<T>(in T field);
extern T port_metadata_unpack<T>(packet_in packet);

parser IngressParserT<H, M>(
    packet_in packet,
    out H headers,
    out M meta,
    @optional out ingress_intrinsic_metadata_t intrinsic,
    @optional out ingress_intrinsic_metadata_for_tm_t for_tm,
    @optional out ingress_intrinsic_metadata_from_parser_t from_parser);

control IngressT<H, M>(
    inout H headers,
    inout M meta,
    @optional in ingress_intrinsic_metadata_t intrinsic,
    @optional in ingress_intrinsic_metadata_from_parser_t from_parser,
    @optional inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
    @optional inout ingress_intrinsic_metadata_for_tm_t for_tm);

control IngressDeparserT<H, M>(
    packet_out packet,
    inout H headers,
    in M meta,
    @optional in ingress_intrinsic_metadata_for_deparser_t for_deparser,
    @optional in ingress_intrinsic_metadata_t intrinsic);

parser EgressParserT<H, M>(
    packet_in packet,
    out H headers,
    out M meta,
    @optional out egress_intrinsic_metadata_t intrinsic,
    @optional out egress_intrinsic_metadata_from_parser_t from_parser);

control EgressT<H, M>(
    inout H headers,
    inout M meta,
    @optional in egress_intrinsic_metadata_t intrinsic,
    @optional in egress_intrinsic_metadata_from_parser_t from_parser,
    @optional inout egress_intrinsic_metadata_for_deparser_t for_deparser,
    @optional inout egress_intrinsic_metadata_for_output_port_t for_port);

control EgressDeparserT<H, M>(
    packet_out packet,
    inout H headers,
    in M meta,
    @optional in egress_intrinsic_metadata_for_deparser_t for_deparser,
    @optional in egress_intrinsic_metadata_t intrinsic);

package Pipeline<IH, IM, EH, EM>(
    IngressParserT<IH, IM> ingress_parser,
    IngressT<IH, IM> ingress,
    IngressDeparserT<IH, IM> ingress_deparser,
    EgressParserT<EH, EM> egress_parser,
    EgressT<EH, EM> egress,
    EgressDeparserT<EH, EM> egress_deparser);

package Switch<IH, IM, EH, EM>(Pipeline<IH, IM, EH, EM> pipe);
