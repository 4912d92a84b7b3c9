// Makes GPSR routers from the settings and the classes of routers/gpsr.
#include <algorithm>

#include "gpsr.h"

namespace carrycast {

namespace {

// Takes the classes and functions of the router's modules, once per process.
void take_parts(const RouterContext& context) {
  GpsrClasses& classes = gpsr_classes;
  if (classes.beacon != nullptr) return;
  auto keep = [&context](const char* name) { return Py_NewRef(context.part(name)); };
  classes.packet = keep("packet");
  classes.bundle = keep("bundle");
  classes.perimeter_header = keep("perimeter_header");
  classes.place = keep("place");
  classes.position = keep("position");
  exact_geometry.orientation = keep("orientation");
  exact_geometry.dot_sign = keep("dot_sign");
  exact_geometry.is_shorter = keep("is_shorter");
  classes.beacon_key = interned("beacon");
  classes.packet_names = check(Py_BuildValue("(ssssss)", "origin", "number", "place", "hops", "at", "perimeter"));
  classes.bundle_names = check(Py_BuildValue("(ssssss)", "origin", "number", "place", "hops", "at", "others"));
  for (bool is_bundle : {false, true}) {
    PyObject* type = is_bundle ? classes.bundle : classes.packet;
    GeoPacketFields& found = is_bundle ? classes.bundle_fields : classes.packet_fields;
    found.parcel.find(type, "parcel");
    found.origin.find(type, "origin");
    found.number.find(type, "number");
    found.place.find(type, "place");
    found.hops.find(type, "hops");
    found.at.find(type, "at");
    found.perimeter.find(type, "perimeter");
  }
  classes.bundle_others.find(classes.bundle, "others");
  classes.beacon_position.find(context.part("beacon"), "position");
  classes.beacon = keep("beacon");
}

}  // namespace

std::unique_ptr<NativeRouter> make_gpsr(const RouterContext& context) {
  take_parts(context);
  GpsrSettings settings{};
  settings.beacon_s = context.real("beacon_s");
  settings.beacon_jitter = context.real("beacon_jitter");
  settings.expiry_s = context.real("expiry_s");
  settings.seen_s = context.real("seen_s");
  double max_range_m = context.real("max_range_m"), beacon_error_m = to_double(context.part("beacon_error_m"));
  settings.max_range_m2 = max_range_m * max_range_m;
  settings.beacon_error_m2 = beacon_error_m * beacon_error_m;
  settings.max_hops = std::min(context.integer("max_hops"), to_int(context.part("max_hops")));
  settings.max_seen = context.integer("max_seen");
  settings.max_neighbors = context.integer("max_neighbors");
  settings.beacon_skips = context.integer("beacon_skips");
  settings.max_others = to_int(context.part("max_others"));
  settings.piggyback = context.flag("piggyback");
  settings.overhear = context.flag("overhear");
  settings.suppress_beacons = context.flag("suppress_beacons");
  settings.direct = context.flag("direct");
  settings.stop_loops = context.flag("stop_loops");
  settings.is_rng = context.is_text("planarization", "rng");
  settings.recovers = context.is_text("recovery", "perimeter");
  return std::make_unique<Gpsr>(settings, context);
}

}  // namespace carrycast
