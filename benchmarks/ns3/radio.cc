// Broadcasts of 802.11p nodes in ns-3 3.37: how many nodes receive each of them.
// Reads from standard input: MODEL (log_distance or nakagami) EXPONENT POWER_DBM SIZE_BYTES SEED NODES, then X Y of each
// node, then NODE TIME_US of each broadcast. Writes: NODE SENT RECEIVED for each node.

#include "ns3/core-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/ocb-wifi-mac.h"
#include "ns3/propagation-module.h"
#include "ns3/wave-mac-helper.h"
#include "ns3/wifi-80211p-helper.h"
#include "ns3/wifi-module.h"

#include <cstdio>
#include <iostream>
#include <vector>

using namespace ns3;

static std::vector<uint64_t> g_sent;
static std::vector<uint64_t> g_received;

static void
Send(Ptr<Socket> socket, uint32_t node, uint32_t size)
{
    socket->Send(Create<Packet>(size));
    g_sent[node]++;
}

static void
Receive(uint32_t node, Ptr<Socket> socket)
{
    while (socket->Recv())
    {
        g_received[node]++;
    }
}

int
main()
{
    std::string model;
    double exponent;
    double powerDbm;
    uint32_t size;
    uint32_t seed;
    uint32_t count;
    std::cin >> model >> exponent >> powerDbm >> size >> seed >> count;
    RngSeedManager::SetSeed(seed);
    NodeContainer nodes;
    nodes.Create(count);
    auto places = CreateObject<ListPositionAllocator>();
    for (uint32_t node = 0; node < count; node++)
    {
        double x;
        double y;
        std::cin >> x >> y;
        places->Add(Vector(x, y, 0));
    }
    MobilityHelper mobility;
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);

    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    // Free space over 1 m at 5.9 GHz.
    channel.AddPropagationLoss("ns3::LogDistancePropagationLossModel",
                               "Exponent",
                               DoubleValue(exponent),
                               "ReferenceDistance",
                               DoubleValue(1.0),
                               "ReferenceLoss",
                               DoubleValue(47.8649));
    if (model == "nakagami")
    {
        channel.AddPropagationLoss("ns3::NakagamiPropagationLossModel",
                                   "Distance1",
                                   DoubleValue(50),
                                   "Distance2",
                                   DoubleValue(150),
                                   "m0",
                                   DoubleValue(3.0),
                                   "m1",
                                   DoubleValue(1.5),
                                   "m2",
                                   DoubleValue(1.0));
    }
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    phy.SetErrorRateModel("ns3::NistErrorRateModel");
    phy.Set("TxPowerStart", DoubleValue(powerDbm));
    phy.Set("TxPowerEnd", DoubleValue(powerDbm));
    phy.Set("RxNoiseFigure", DoubleValue(7.0));
    auto mac = QosWaveMacHelper::Default();
    auto wifi = Wifi80211pHelper::Default();
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode",
                                 StringValue("OfdmRate6MbpsBW10MHz"),
                                 "ControlMode",
                                 StringValue("OfdmRate6MbpsBW10MHz"),
                                 "NonUnicastMode",
                                 StringValue("OfdmRate6MbpsBW10MHz"));
    NetDeviceContainer devices = wifi.Install(phy, mac, nodes);
    PacketSocketHelper sockets;
    sockets.Install(nodes);
    std::vector<Ptr<Socket>> kept;
    g_sent.resize(count);
    g_received.resize(count);
    for (uint32_t node = 0; node < count; node++)
    {
        PacketSocketAddress address;
        address.SetSingleDevice(devices.Get(node)->GetIfIndex());
        address.SetPhysicalAddress(Mac48Address::GetBroadcast());
        address.SetProtocol(1);
        auto socket = Socket::CreateSocket(nodes.Get(node), TypeId::LookupByName("ns3::PacketSocketFactory"));
        kept.push_back(socket);
        socket->Bind(address);
        socket->Connect(address);
        socket->SetRecvCallback(MakeBoundCallback(&Receive, node));
    }
    uint32_t sender;
    int64_t timeUs;
    int64_t lastUs = 0;
    while (std::cin >> sender >> timeUs)
    {
        Simulator::Schedule(MicroSeconds(timeUs), &Send, kept[sender], sender, size);
        lastUs = std::max(lastUs, timeUs);
    }
    Simulator::Stop(MicroSeconds(lastUs) + Seconds(1));
    Simulator::Run();
    Simulator::Destroy();
    for (uint32_t node = 0; node < count; node++)
    {
        printf("%u %lu %lu\n", node, g_sent[node], g_received[node]);
    }
}
