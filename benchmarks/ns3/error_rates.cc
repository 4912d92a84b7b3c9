// The error rates of ns-3 3.37, one line for each modulation and ratio of signal to noise.
// ofdm MODE DB NIST YANS; dsss DB 1M 2M 5.5M 11M; 802154 DB SUCCESS

#include "ns3/core-module.h"
#include "ns3/dsss-error-rate-model.h"
#include "ns3/lr-wpan-error-model.h"
#include "ns3/nist-error-rate-model.h"
#include "ns3/ofdm-phy.h"
#include "ns3/wifi-tx-vector.h"
#include "ns3/yans-error-rate-model.h"

#include <cmath>
#include <cstdio>

using namespace ns3;

int
main()
{
    auto nist = CreateObject<NistErrorRateModel>();
    auto yans = CreateObject<YansErrorRateModel>();
    const uint64_t rates[] = {3000000, 4500000, 6000000, 9000000, 12000000, 18000000, 24000000, 27000000};
    const int bits = 8000;
    for (int place = 0; place < 8; place++)
    {
        WifiMode mode = OfdmPhy::GetOfdmRate(rates[place], 10);
        WifiTxVector vector;
        vector.SetMode(mode);
        vector.SetChannelWidth(10);
        for (double db = 0; db <= 26; db += 2)
        {
            double ratio = std::pow(10, db / 10);
            printf("ofdm %d %g %.9f %.9f\n",
                   place,
                   db,
                   nist->GetChunkSuccessRate(mode, vector, ratio, bits),
                   yans->GetChunkSuccessRate(mode, vector, ratio, bits));
        }
    }
    for (double db = -14; db <= 12; db += 2)
    {
        double ratio = std::pow(10, db / 10);
        printf("dsss %g %.9f %.9f %.9f %.9f\n",
               db,
               DsssErrorRateModel::GetDsssDbpskSuccessRate(ratio, bits),
               DsssErrorRateModel::GetDsssDqpskSuccessRate(ratio, bits),
               DsssErrorRateModel::GetDsssDqpskCck5_5SuccessRate(ratio, bits),
               DsssErrorRateModel::GetDsssDqpskCck11SuccessRate(ratio, bits));
    }
    auto lowRate = CreateObject<LrWpanErrorModel>();
    for (double db = -6; db <= 4; db += 1)
    {
        printf("802154 %g %.9f\n", db, lowRate->GetChunkSuccessRate(std::pow(10, db / 10), 160));
    }
}
