// BMv2's entry to the shared parser: its metadata says which packets were recirculated.
const bit<32> INSTANCE_RECIRCULATED = 4;

parser SwitchParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard)
{
    PacketParser() packets;

    state start {
        meta.between = standard.instance_type == INSTANCE_RECIRCULATED;
        packets.apply(packet, hdr, meta);
        transition accept;
    }
}
