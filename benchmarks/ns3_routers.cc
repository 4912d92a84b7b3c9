// A router of ns-3 over an ns-2 movement file and a list of packets, for benchmarks/ns3_routers.py.
//
// Usage: ns3_routers ROUTER MOVEMENT PACKETS NODES DURATION_S RANGE_M SEED
// PACKETS has a line "time_s source target size_bytes" for each packet. The output is one JSON object.

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ns3/aodv-module.h"
#include "ns3/core-module.h"
#include "ns3/dsdv-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/olsr-module.h"
#include "ns3/wifi-module.h"

using namespace ns3;

namespace
{

const uint16_t DATA_PORT = 9;
const std::map<uint16_t, std::string> CONTROL_PORTS = {{654, "aodv"}, {698, "olsr"}, {269, "dsdv"}};

struct PlannedPacket
{
    double time_s;
    uint32_t source;
    uint32_t target;
    uint32_t size_bytes;
};

std::vector<PlannedPacket> g_packets;
std::vector<double> g_delays_s;
std::vector<bool> g_arrived;
std::vector<Ptr<Socket>> g_sockets;
std::vector<Ipv4Address> g_addresses;
uint64_t g_data_frames = 0;
uint64_t g_control_frames = 0;
uint64_t g_hello_frames = 0;
uint64_t g_other_frames = 0;

void
Send(uint32_t number)
{
    const PlannedPacket& planned = g_packets[number];
    std::vector<uint8_t> body(std::max<uint32_t>(planned.size_bytes, sizeof(number)));
    std::memcpy(body.data(), &number, sizeof(number));
    Ptr<Packet> packet = Create<Packet>(body.data(), body.size());
    g_sockets[planned.source]->SendTo(packet, 0, InetSocketAddress(g_addresses[planned.target], DATA_PORT));
}

void
OnReceive(Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
    {
        uint32_t number = 0;
        packet->CopyData(reinterpret_cast<uint8_t*>(&number), sizeof(number));
        if (!g_arrived[number])
        {
            g_arrived[number] = true;
            g_delays_s.push_back(Simulator::Now().GetSeconds() - g_packets[number].time_s);
        }
    }
}

void
OnTransmit(Ptr<const Packet> frame, double)
{
    Ptr<Packet> copy = frame->Copy();
    WifiMacHeader mac;
    copy->RemoveHeader(mac);
    if (!mac.IsData())
    {
        return;
    }
    LlcSnapHeader llc;
    copy->RemoveHeader(llc);
    if (llc.GetType() != 0x0800)
    {
        g_other_frames++;
        return;
    }
    Ipv4Header ip;
    copy->RemoveHeader(ip);
    UdpHeader udp;
    copy->RemoveHeader(udp);
    if (ip.GetProtocol() == 17 && CONTROL_PORTS.count(udp.GetDestinationPort()))
    {
        // A HELLO of AODV is a broadcast RREP, whose type is 2.
        uint8_t type = 0;
        copy->CopyData(&type, 1);
        const bool hello = udp.GetDestinationPort() == 654 && type == 2 && mac.GetAddr1().IsBroadcast();
        (hello ? g_hello_frames : g_control_frames)++;
    }
    else if (ip.GetProtocol() == 17 && udp.GetDestinationPort() == DATA_PORT)
    {
        g_data_frames++;
    }
    else
    {
        g_other_frames++;
    }
}

// carrycast has no address resolution. The entries are permanent, because AODV finds the neighbor of a failed frame only
// by entries that are alive or permanent.
void
FillArpCaches(const NodeContainer& container,
              const Ipv4InterfaceContainer& interfaces,
              const NetDeviceContainer& devices)
{
    for (uint32_t node = 0; node < container.GetN(); node++)
    {
        Ptr<ArpCache> cache = container.Get(node)->GetObject<Ipv4L3Protocol>()->GetInterface(1)->GetArpCache();
        for (uint32_t other = 0; other < container.GetN(); other++)
        {
            if (other != node)
            {
                ArpCache::Entry* entry = cache->Add(interfaces.GetAddress(other));
                entry->SetMacAddress(devices.Get(other)->GetAddress());
                entry->MarkPermanent();
            }
        }
    }
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 8)
    {
        std::cerr << "usage: ns3_routers ROUTER MOVEMENT PACKETS NODES DURATION_S RANGE_M SEED" << std::endl;
        return 2;
    }
    const std::string router = argv[1];
    const uint32_t nodes = std::stoul(argv[4]);
    const double duration_s = std::stod(argv[5]);
    const double range_m = std::stod(argv[6]);
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(std::stoul(argv[7]));

    std::ifstream planned(argv[3]);
    for (PlannedPacket one; planned >> one.time_s >> one.source >> one.target >> one.size_bytes;)
    {
        g_packets.push_back(one);
    }
    g_arrived.assign(g_packets.size(), false);

    NodeContainer container;
    container.Create(nodes);
    Ns2MobilityHelper movement(argv[2]);
    movement.Install();

    // As in carrycast's preset "802.11b" with disks: frames are received, sensed and interfere up to one range.
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize("50p")));
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211b);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode", StringValue("DsssRate11Mbps"),
                                 "ControlMode", StringValue("DsssRate1Mbps"),
                                 "NonUnicastMode", StringValue("DsssRate1Mbps"));
    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    channel.AddPropagationLoss("ns3::RangePropagationLossModel", "MaxRange", DoubleValue(range_m));
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac");
    NetDeviceContainer devices = wifi.Install(phy, mac, container);

    InternetStackHelper internet;
    AodvHelper aodv;
    OlsrHelper olsr;
    DsdvHelper dsdv;
    if (router == "aodv")
    {
        // With HELLOs, the default: without them its table of neighbors expires, and it reports links as broken that
        // work.
        internet.SetRoutingHelper(aodv);
    }
    else if (router == "olsr")
    {
        internet.SetRoutingHelper(olsr);
    }
    else if (router == "dsdv")
    {
        internet.SetRoutingHelper(dsdv);
    }
    else
    {
        std::cerr << "unknown router " << router << std::endl;
        return 2;
    }
    internet.Install(container);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.0.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    FillArpCaches(container, interfaces, devices);

    for (uint32_t node = 0; node < nodes; node++)
    {
        g_addresses.push_back(interfaces.GetAddress(node));
        Ptr<Socket> socket = Socket::CreateSocket(container.Get(node), UdpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), DATA_PORT));
        socket->SetRecvCallback(MakeCallback(&OnReceive));
        g_sockets.push_back(socket);
    }
    for (uint32_t number = 0; number < g_packets.size(); number++)
    {
        Simulator::Schedule(Seconds(g_packets[number].time_s), &Send, number);
    }
    Config::ConnectWithoutContext("/NodeList/*/DeviceList/*/$ns3::WifiNetDevice/Phy/PhyTxBegin",
                                  MakeCallback(&OnTransmit));
    Simulator::Stop(Seconds(duration_s));
    Simulator::Run();
    Simulator::Destroy();

    std::sort(g_delays_s.begin(), g_delays_s.end());
    const size_t arrived = g_delays_s.size();
    const double median_s =
        arrived == 0 ? -1
                     : (g_delays_s[(arrived - 1) / 2] + g_delays_s[arrived / 2]) / 2;
    std::cout << "{\"packets\": " << g_packets.size() << ", \"delivered\": " << arrived
              << ", \"median_delay_s\": " << median_s << ", \"data_frames\": " << g_data_frames
              << ", \"control_frames\": " << g_control_frames << ", \"hello_frames\": " << g_hello_frames << ", \"other_frames\": " << g_other_frames << "}"
              << std::endl;
    return 0;
}
