"""The policy management tool (PMT), with which users check, publish, withdraw and list policies.

[000 §III] Before a policy is published, the tool requests all policies that it might conflict with. It publishes the
policy only if there is no conflict, or if priority resolves it. Then it reports which repositories have stored it.
"""

from collections import deque
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Application, ApplicationPort, Fact, Host, Key, Settings
from carrycast.errors import UserError
from carrycast.services.policy.catalog import (
    MalformedError,
    PolicyCatalog,
    PolicyRecord,
    PublishedPolicy,
    encode_record,
    make_successor,
    make_withdrawal,
    read_policy,
    record_attributes,
)
from carrycast.services.policy.conflict import explain_inapplicable, find_conflicts
from carrycast.services.policy.context import read_wall_time
from carrycast.services.policy.messages import TO, PolicyReport, decode_message
from carrycast.services.policy.policy_text import MAX_TEXT_CHARACTERS, format_policy, read_policies
from carrycast.services.policy.roles import ANY_POLICY, EVERYBODY, NAME, POLICY_ID, Role, overlap_filters, role_filters
from carrycast.services.policy.rule import Policy
from carrycast.services.policy.survey import (
    PolicySurvey,
    SurveyAnswer,
    is_survey_answer,
    make_status,
    read_survey_answer,
    send_survey,
)

MAX_SURVEYED = 1000
"""The most policies that a survey names. For more, it asks for all policies."""


class ToolRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a command."""

    text: Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)] = ""
    """Policies, for `check` and `publish`."""
    id: Annotated[str, Meta(pattern=f"^({NAME})?$")] = ""
    """The id of a policy, for `withdraw`, `history` and `status`."""
    node: Annotated[str, Meta(max_length=256)] = ""
    """The node (name or number) that `status` shows; empty for all."""
    roles: tuple[Role, ...] = ()
    """The roles whose policies `list` shows; empty for all."""
    anyway: bool = False
    """Whether to publish even if not every repository has answered."""
    next: bool = False
    """Whether to publish as the version after the highest known one."""
    nodes: tuple[tuple[Role, ...], ...] | None = None
    """The roles of each node, if the user knows them; the overlap of roles is then exact."""

    def population(self) -> list[frozenset[str]] | None:
        """The roles of all nodes, if they are known."""
        return None if self.nodes is None else [frozenset(roles) for roles in self.nodes]


class ToolCommand:
    """A command in progress."""

    def __init__(self, command: int, verb: str, ask: ToolRequest, policies: list[Policy]) -> None:
        self.command = command
        self.verb = verb
        self.ask = ask
        self.policies = policies
        self.open: set[str] = set()
        self.complete = True
        self.found: dict[EventId, PublishedPolicy] = {}
        self.attempts = 0
        self.published: dict[tuple[str, int], PolicyRecord] = {}
        self.stored: dict[tuple[str, int], list[NodeId]] = {}
        self.told: dict[str, Any] = {}
        self.surveying = False
        self.holdings: list[SurveyAnswer] = []
        """The answers of nodes to the command's survey."""


def required_filters(job: ToolCommand) -> list[str]:
    """The filters of all policies that a command needs; raises UserError if the command is not valid."""
    if job.verb in ("check", "publish"):
        if not job.policies:
            raise UserError("there is no policy in this")
        if job.ask.nodes is not None:
            # Nodes may have any combination of roles, so the roles of any policy may overlap.
            return [ANY_POLICY]
        roles = overlap_filters(roles for policy in job.policies for roles in policy.roles)
        if roles == [ANY_POLICY]:
            return roles
        # Other versions of the same policies may have other roles.
        ids = [policy.id for policy in job.policies]
        parts = [ids[at : at + 50] for at in range(0, len(ids), 50)]
        return [*roles, *(f"{POLICY_ID} in ({', '.join(repr(id) for id in part)})" for part in parts)]
    if job.verb == "list":
        return role_filters(job.ask.roles) if job.ask.roles else [ANY_POLICY]
    if job.verb in ("withdraw", "history"):
        if not job.ask.id:
            raise UserError(f"{job.verb}: name a policy")
        return [f"{POLICY_ID} = '{job.ask.id}'"]
    if job.verb == "status":
        return []
    raise UserError("a management tool knows check, publish, withdraw, list, history, status and reports")


def make_survey(job: ToolCommand, number: int, spread_s: float) -> PolicySurvey:
    """Make the survey of a command. Nodes may hold policies that no repository knows."""
    if job.verb in ("check", "publish"):
        ids: tuple[str, ...] = tuple(policy.id for policy in job.policies)
    else:
        ids = (job.ask.id,) if job.ask.id else ()
    if len(ids) > MAX_SURVEYED:
        ids = ()
    return PolicySurvey(number, spread_s, ids, records=job.verb not in ("status", "list"))


def find_unstored_policies(job: ToolCommand) -> list[dict[str, object]]:
    """Find the policies of which nodes hold a newer version than any repository."""
    stored: dict[str, int] = {}
    for held in job.found.values():
        id, version = held.record.policy.id, held.record.policy.version
        stored[id] = max(version, stored.get(id, 0))
    nodes: dict[tuple[str, int], list[NodeId]] = {}
    for holdings in job.holdings:
        for one in holdings.held:
            # The command asked for other roles.
            if job.ask.roles and not {EVERYBODY, *job.ask.roles} & set(one.roles):
                continue
            if holdings.part == "decision" and one.state != "withdrawn" and one.version > stored.get(one.policy, 0):
                nodes.setdefault((one.policy, one.version), []).append(holdings.node)
    return [{"id": id, "version": version, "nodes": sorted(held)} for (id, version), held in sorted(nodes.items())]


def list_policies(job: ToolCommand) -> list[dict[str, object]]:
    """List the found policies: the newest versions, without withdrawn ones, or (`history`) all versions of one."""
    newest: dict[str, PublishedPolicy] = {}
    for held in sorted(job.found.values(), key=lambda held: held.rank):
        newest[held.record.policy.id] = held
    if job.verb == "history":
        # A version that was published again, because no repository had stored it, occurs once.
        versions = {(held.record.policy.version, held.event.source): held for held in job.found.values()}
        shown = sorted(versions.values(), key=lambda held: held.rank)
    else:
        shown = [held for _, held in sorted(newest.items()) if not held.record.withdrawn]
    return [
        {
            "id": held.record.policy.id,
            "version": held.record.policy.version,
            "withdrawn": held.record.withdrawn,
            "from": held.event.source,
            "event": str(held.event),
            "text": format_policy(held.record.policy),
        }
        for held in shown
    ]


_SURVEY = "survey"

MAX_JOBS = 64
"""The most commands in progress. Further commands are refused."""

MAX_REPORTS = 1000
"""The number of reports that are kept for the command `reports`."""

MAX_FOUND = 100_000
"""The most versions of policies, and the most survey answers, that one command processes."""

MAX_OWN = 10_000
"""The most of its own policies, and of node names, that a tool remembers."""


class ToolSettings(Settings, frozen=True):
    """The time-outs of a tool."""

    patience_s: Annotated[float, Meta(gt=0, le=3600, description="the time to wait for answers of repositories")] = 5.0
    stored_s: Annotated[
        float, Meta(gt=0, le=3600, description="the time to wait for reports that a policy is stored")
    ] = 5.0
    # If a network loses one message in ten, a thousandth of the policies is stored nowhere.
    attempts: Annotated[
        int, Meta(ge=1, le=100, description="the most publications of a policy until a repository reports it as stored")
    ] = 3
    # Over ten hops a message takes some tenths of a second; answers are spread over half of the time.
    survey_s: Annotated[float, Meta(gt=0, le=3600, description="the time to wait for answers to a survey")] = 1.0
    repositories: Annotated[
        int, Meta(ge=1, le=10_000, description="the number of repositories that must store a policy to end the wait")
    ] = 1
    clock_slack_s: Annotated[
        float, Meta(gt=0, le=1e9, description="the largest difference between clocks that is not reported")
    ] = 60.0


class ManagementTool(Application):
    """A policy management tool."""

    name = "policy_tool"
    summary = "checks, publishes, withdraws and lists policies"
    settings_type = ToolSettings

    def __init__(self, node: NodeId, settings: Settings, port: ApplicationPort, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        assert isinstance(settings, ToolSettings)
        self._settings = settings
        self._jobs: dict[int, ToolCommand] = {}
        self._own: dict[str, PolicyRecord] = {}
        self.reports: deque[PolicyReport] = deque(maxlen=MAX_REPORTS)
        self.skew_s: dict[NodeId, float] = {}
        """The differences of other nodes' clocks from this node's that exceed `clock_slack_s`."""
        self.names: dict[NodeId, str] = {node: host.name} if host.name else {}
        """The names of the nodes from which a message has arrived."""

    def on_start(self, now: float) -> None:
        self.port.subscribe("reports", f'"{TO}" = {self.node}')

    def on_stop(self, now: float) -> None:
        for number in self._jobs:
            self.port.cancel_timer(f"{number}")
            self.port.cancel_timer(f"{_SURVEY} {number}")

    def on_command(self, now: float, command: int, verb: str, body: bytes) -> None:
        """`check`, `publish`, `withdraw`, `list`, `history`, `status`, `reports`."""
        try:
            ask = msgspec.json.decode(body or b"{}", type=ToolRequest)
            if verb == "reports":
                self._reply(command, {"reports": list(self.reports), "skew_s": self.skew_s})
                return
            if len(self._jobs) >= MAX_JOBS:
                raise UserError(f"the tool works on {MAX_JOBS} commands already; try again")
            job = ToolCommand(command, verb, ask, read_policies(ask.text) if verb in ("check", "publish") else [])
            texts = required_filters(job)
        except (msgspec.MsgspecError, UserError) as error:
            self._reply(command, {"error": str(error)})
            return
        self._jobs[command] = job
        job.surveying = True
        survey = make_survey(job, self._survey_number(command), self._settings.survey_s / 2)
        send_survey(self.port, self.node, survey)
        self.port.set_timer(f"{_SURVEY} {command}", self._settings.survey_s)
        for number, text in enumerate(texts):
            key = f"{command} {number}"
            job.open.add(key)
            self.port.request(key, text, self._settings.patience_s)

    def _survey_number(self, command: int) -> int:
        """The number of a command's survey, which differs from those before a restart."""
        return (self.host.incarnation << 32) + command

    def on_answer(self, now: float, key: Key, event: Event, hops: int) -> None:
        job = self._jobs.get(int(key.split()[0]))
        if job is None:
            return
        if len(job.found) >= MAX_FOUND:
            self.port.note(Fact("drop", event.id, event.source, "too_many_policies"))
            job.complete = False
            return
        try:
            held = read_policy(event)
            # A policy that was published again has the same original event.
            job.found[held.event] = held
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_policy"))

    def on_closed(self, now: float, key: Key, complete: bool) -> None:
        job = self._jobs.get(int(key.split()[0]))
        if job is None or key not in job.open:
            return
        job.open.discard(key)
        job.complete = job.complete and complete
        self._continue(job)

    def _continue(self, job: ToolCommand) -> None:
        if job.open or job.surveying:
            return
        for holdings in job.holdings:
            for one in holdings.held:
                if one.record is not None and one.event is not None and len(job.found) < MAX_FOUND:
                    job.found.setdefault(one.event, PublishedPolicy(one.record, one.event))
        try:
            self._carry_out(job)
        except UserError as error:
            self._end(job, {"error": str(error)})

    def _carry_out(self, job: ToolCommand) -> None:
        """Execute a command after repositories and nodes have answered, or their time is up."""
        if job.verb == "status":
            self._end(job, {"policies": make_status(job.holdings, job.ask.id, job.ask.node, self.names)})
            return
        if job.verb in ("list", "history"):
            told: dict[str, object] = {"complete": job.complete, "policies": list_policies(job)}
            if job.verb == "list" and (found := find_unstored_policies(job)):
                told["unstored"] = found
            self._end(job, told)
            return
        if not job.complete and not job.ask.anyway and job.verb != "check":
            unseen = "a newer version" if job.verb == "withdraw" else "a conflict"
            raise UserError(
                f"not every repository has answered, so {unseen} may go unseen; try again, or {job.verb} anyway"
            )
        if job.verb == "withdraw":
            before = self._find_versions(job, job.ask.id)
            if not before:
                raise UserError(f"no node and no repository that answered knows a policy {job.ask.id}")
            if before[-1].withdrawn:
                version = before[-1].policy.version
                raise UserError(f"policy {job.ask.id} is withdrawn already, with its version {version}")
            self._publish(job, [make_withdrawal(before)])
            return
        self._check(job)

    def _check(self, job: ToolCommand) -> None:
        known = self._make_catalog(job)
        explain: list[str] = []
        resolved: list[str] = []
        records: list[PolicyRecord] = []
        for written in job.policies:
            before = self._find_versions(job, written.id)
            version = before[-1].policy.version + 1 if job.ask.next and before else written.version
            policy = msgspec.structs.replace(written, version=version)
            records.append(make_successor(policy, before))
            refused, ordered = find_conflicts(policy, known.possible_conflicts(policy), job.ask.population())
            explain += [one.explain() for one in refused]
            resolved += [one.explain() for one in ordered]
            # Policies of one file are also compared with each other.
            known.add(PublishedPolicy(records[-1], EventId(self.node, 0)))
        job.told = {
            "resolved": resolved,
            "warnings": [said for one in job.policies if (said := explain_inapplicable(one))],
        }
        if not job.complete:
            job.told["warnings"] = [*job.told["warnings"], "not every repository has answered"]
        if explain:
            self._end(job, {"error": explain[0], "clashes": explain})
        elif job.verb == "check":
            names = [{"id": record.policy.id, "version": record.policy.version} for record in records]
            self._end(job, {"policies": names})
        else:
            self._publish(job, records)

    def _publish(self, job: ToolCommand, records: list[PolicyRecord]) -> None:
        for record in records:
            policy = record.policy
            job.published[policy.id, policy.version] = record
            job.stored[policy.id, policy.version] = []
            if len(self._own) < MAX_OWN or policy.id in self._own:
                self._own[policy.id] = record
        self._send(job)

    def _send(self, job: ToolCommand) -> None:
        """Publish the policies that no repository has reported as stored. A repetition has the same version."""
        job.attempts += 1
        for key, record in job.published.items():
            if not job.stored[key]:
                self.port.publish(record_attributes(record), encode_record(record))
        self.port.set_timer(f"{job.command}", self._settings.stored_s)

    def on_event(self, now: float, key: Key, event: Event, hops: int) -> None:
        if is_survey_answer(event):
            self._on_holdings(event)
            return
        try:
            report = decode_message(event, PolicyReport)
            if report.node != event.source:
                raise MalformedError("a node tells of itself alone")
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_report"))
            return
        self.reports.append(report)
        self._learn_name(report.node, report.name)
        self._compare_clocks(now, report)
        if report.what != "stored":
            return
        for job in list(self._jobs.values()):
            nodes = job.stored.get((report.policy, report.version))
            if nodes is not None and report.node not in nodes:
                nodes.append(report.node)
                if all(len(one) >= self._settings.repositories for one in job.stored.values()):
                    self._end_publish(job)

    def _on_holdings(self, event: Event) -> None:
        try:
            holdings = read_survey_answer(event)
        except MalformedError:
            self.port.note(Fact("drop", event.id, event.source, "malformed_holdings"))
            return
        self._learn_name(holdings.node, holdings.name)
        for job in self._jobs.values():
            if job.surveying and holdings.number == self._survey_number(job.command) and len(job.holdings) < MAX_FOUND:
                job.holdings.append(holdings)

    def _learn_name(self, node: NodeId, name: str) -> None:
        if name and (node in self.names or len(self.names) < MAX_OWN):
            self.names[node] = name

    def on_timer(self, now: float, key: Key) -> None:
        word, _, number = key.rpartition(" ")
        if word == _SURVEY:
            surveyed = self._jobs.get(int(number))
            if surveyed is not None:
                surveyed.surveying = False
                self._continue(surveyed)
            return
        job = self._jobs.get(int(key))
        if job is None:
            return
        if job.attempts < self._settings.attempts and not all(job.stored.values()):
            self._send(job)
        else:
            self._end_publish(job)

    def _compare_clocks(self, now: float, report: PolicyReport) -> None:
        """Record clocks that differ too much. Each node evaluates time periods with its own clock."""
        wall = read_wall_time(self.host, now)
        if wall is None or report.utc_s is None:
            return
        skew_s = report.utc_s - wall.utc_s
        if abs(skew_s) <= self._settings.clock_slack_s:
            self.skew_s.pop(report.node, None)
        elif report.node in self.skew_s or len(self.skew_s) < MAX_REPORTS:
            self.skew_s[report.node] = skew_s
            self.port.note(Fact("clock_differs", peer=report.node, value=skew_s))

    def _end_publish(self, job: ToolCommand) -> None:
        self.port.cancel_timer(f"{job.command}")
        published = [{"id": id, "version": version, "stored_by": nodes} for (id, version), nodes in job.stored.items()]
        self._end(job, {"published": published})

    def _end(self, job: ToolCommand, told: dict[str, object]) -> None:
        del self._jobs[job.command]
        names = {"names": {str(node): name for node, name in self.names.items()}} if self.names else {}
        self._reply(job.command, {**job.told, **told, **names})

    def _reply(self, command: int, told: dict[str, object]) -> None:
        self.port.reply(command, msgspec.json.encode(told))

    def _make_catalog(self, job: ToolCommand) -> PolicyCatalog:
        known = PolicyCatalog(1 << 30)
        for held in job.found.values():
            known.add(held)
        return known

    def _find_versions(self, job: ToolCommand, id: str) -> list[PolicyRecord]:
        """Find all known versions of a policy, the newest last. They include the version that this tool published, even
        if it is not stored yet."""
        found = [held.record for _, held in sorted(job.found.items()) if held.record.policy.id == id]
        found += [record for record in (self._own.get(id),) if record is not None]
        return sorted(found, key=lambda record: record.policy.version)
