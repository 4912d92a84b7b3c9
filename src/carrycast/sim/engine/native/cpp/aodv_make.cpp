// Makes AODV routers from the settings and the classes of routers/aodv.
#include "aodv.h"

namespace carrycast {

namespace {

// Takes the classes of the router's modules, once per process.
void take_parts(const RouterContext& context) {
  AodvClasses& classes = aodv_classes;
  if (classes.request != nullptr) return;
  auto keep = [&context](const char* name) { return Py_NewRef(context.part(name)); };
  classes.reply = keep("reply");
  classes.error = keep("error");
  classes.hello = keep("hello");
  classes.packet = keep("packet");
  classes.bundle = keep("bundle");
  classes.place = keep("place");
  classes.packet_names = check(Py_BuildValue("(sss)", "origin", "destination", "hops"));
  classes.bundle_names = check(Py_BuildValue("(ssss)", "origin", "destination", "hops", "others"));
  const char* request[] = {"originator", "originator_sequence", "rreq_id",    "destination",     "destination_sequence",
                           "hop_count",  "ttl",                 "gratuitous", "destination_only"};
  for (int i = 0; i < 9; i++) classes.request_fields[i].find(context.part("request"), request[i]);
  const char* reply[] = {"originator", "destination", "destination_sequence", "hop_count", "lifetime_ms"};
  for (int i = 0; i < 5; i++) classes.reply_fields[i].find(classes.reply, reply[i]);
  classes.error_unreachable.find(classes.error, "unreachable");
  classes.error_no_delete.find(classes.error, "no_delete");
  classes.hello_sequence.find(classes.hello, "sequence");
  classes.bundle_others.find(classes.bundle, "others");
  for (bool is_bundle : {false, true}) {
    PyObject* type = is_bundle ? classes.bundle : classes.packet;
    AodvPacketFields& found = is_bundle ? classes.bundle_fields : classes.packet_fields;
    found.parcel.find(type, "parcel");
    found.origin.find(type, "origin");
    found.destination.find(type, "destination");
    found.hops.find(type, "hops");
  }
  classes.request = keep("request");
}

}  // namespace

std::unique_ptr<NativeRouter> make_aodv(const RouterContext& context) {
  take_parts(context);
  AodvSettings settings{};
  const std::pair<double*, const char*> reals[] = {{&settings.active_route_timeout_s, "active_route_timeout_s"},
                                                   {&settings.my_route_timeout_s, "my_route_timeout_s"},
                                                   {&settings.node_traversal_s, "node_traversal_s"},
                                                   {&settings.net_traversal_s, "net_traversal_s"},
                                                   {&settings.delete_period_s, "delete_period_s"},
                                                   {&settings.rest_s, "rest_s"},
                                                   {&settings.path_discovery_s, "path_discovery_s"},
                                                   {&settings.reverse_route_s, "reverse_route_s"},
                                                   {&settings.hello_interval_s, "hello_interval_s"},
                                                   {&settings.hello_jitter, "hello_jitter"},
                                                   {&settings.max_repair_share, "max_repair_share"},
                                                   {&settings.forward_jitter_s, "forward_jitter_s"},
                                                   {&settings.buffer_s, "buffer_s"}};
  for (const auto& [place, name] : reals) *place = context.real(name);
  const std::pair<int64_t*, const char*> integers[] = {{&settings.net_diameter, "net_diameter"},
                                                       {&settings.ttl_start, "ttl_start"},
                                                       {&settings.ttl_increment, "ttl_increment"},
                                                       {&settings.ttl_threshold, "ttl_threshold"},
                                                       {&settings.timeout_buffer, "timeout_buffer"},
                                                       {&settings.request_retries, "request_retries"},
                                                       {&settings.request_rate, "request_rate"},
                                                       {&settings.error_rate, "error_rate"},
                                                       {&settings.hello_loss, "hello_loss"},
                                                       {&settings.local_add_ttl, "local_add_ttl"},
                                                       {&settings.buffer, "buffer"},
                                                       {&settings.max_hops, "max_hops"},
                                                       {&settings.max_routes, "max_routes"},
                                                       {&settings.max_requests, "max_requests"}};
  for (const auto& [place, name] : integers) *place = context.integer(name);
  settings.backs_off_binary = context.is_text("backoff", "binary");
  settings.detects_by_hello = context.is_text("detection", "hello");
  settings.repairs_near_target = context.is_text("local_repair", "near_target");
  settings.repairs_past_half = context.is_text("local_repair", "past_half");
  settings.rebuffer = context.flag("rebuffer");
  settings.raise_on_reply = context.flag("raise_on_reply");
  settings.destination_only = context.flag("destination_only");
  settings.gratuitous = context.flag("gratuitous");
  settings.reboot_wait = context.flag("reboot_wait");
  const std::pair<int64_t*, const char*> constants[] = {{&settings.max_others, "max_others"},
                                                        {&settings.max_unreachable, "max_unreachable"},
                                                        {&settings.max_hop_count, "max_hop_count"},
                                                        {&settings.max_jump, "max_jump"},
                                                        {&settings.max_sequence, "max_sequence"},
                                                        {&settings.max_precursors, "max_precursors"}};
  for (const auto& [place, name] : constants) *place = to_int(context.part(name));
  return std::make_unique<Aodv>(settings, context);
}

}  // namespace carrycast
