"""Counts and timings, for Prometheus. Names follow vLLM's where the meaning is the same, with `headrace_` before them.

Counting costs plain integer work, since it happens for each token: prometheus-client only renders what is scraped.
Session and turn ids never become labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway.errors import GatewayError
from gateway.pieces import ChunksEnd, Piece
from gateway.schema_checks import Violation
from gateway.types import EngineInfo, EngineStats, TurnEvent, TurnText, Usage
from stream_parser.events import Finish, ToolCallEnd, ToolCallStart

_LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 240.0)


class Histogram:
    """Bucket counts and a sum; observing is O(log buckets)."""

    def __init__(self, bounds: tuple[float, ...] = _LATENCY_BUCKETS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, help_text: str) -> Metric:
        labels = [*(str(bound) for bound in self._bounds), "+Inf"]
        buckets = list(zip(labels, accumulate(map(float, self._counts)), strict=True))
        return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """One an app. Attributes are written by their owners; `registry` is scraped."""

    def __init__(
        self, clock: Callable[[], float], engine_stats: Callable[[], EngineStats | None],
        engine_info: Callable[[], EngineInfo | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self.engine_stats, self.engine_info = engine_stats, engine_info
        self.time_to_first_token = Histogram()
        self.inter_token_latency = Histogram()
        self.turn_latency = Histogram()
        self.time_to_first_tool_call = Histogram()
        self.time_to_complete_tool_call = Histogram()
        self.num_live_turns = 0
        self.num_open_streams: Counter[str] = Counter()
        self.num_prompt_tokens = 0
        self.num_cached_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_choices_by_reason: Counter[str] = Counter()
        self.num_failures_by_code: Counter[str] = Counter()
        self.num_tool_calls_by_outcome: Counter[str] = Counter()
        self.num_schema_violations: Counter[tuple[str, str]] = Counter()
        self.num_http_responses: Counter[tuple[str, str]] = Counter()
        self.registry = CollectorRegistry()
        self.registry.register(_GatewayCollector(self))

    def meter(self) -> TurnMeter:
        return TurnMeter(self, self._clock)

    def count_response(self, path: str, status: int) -> None:
        """`path` is a route's, never what a client made up."""
        self.num_http_responses[path, str(status)] += 1

    @contextmanager
    def open_stream(self, transport: str) -> Iterator[None]:
        self.num_open_streams[transport] += 1
        try:
            yield
        finally:
            self.num_open_streams[transport] -= 1


class TurnMeter:
    """Times and counts one turn, from its making to `done` or `failed`."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._started_s = clock()
        self._last_piece_s: dict[int, float] = {}
        self._num_tokens = 0
        self._has_called = False
        metrics.num_live_turns += 1

    def piece(self, piece: Piece) -> None:
        if isinstance(piece, ChunksEnd):
            return
        now_s = self._clock()
        metrics = self._metrics
        metrics.num_generation_tokens += piece.num_tokens
        self._num_tokens += piece.num_tokens
        last_s = self._last_piece_s.get(piece.choice)
        if last_s is not None:
            metrics.inter_token_latency.observe((now_s - last_s) / max(piece.num_tokens, 1))
        elif not self._last_piece_s:
            metrics.time_to_first_token.observe(now_s - self._started_s)
        self._last_piece_s[piece.choice] = now_s

    def item(self, item: TurnEvent | TurnText) -> None:
        if isinstance(item, TurnText):
            if item.finish_reason is not None:
                self._metrics.num_choices_by_reason[item.finish_reason] += 1
        elif isinstance(item.event, ToolCallStart):
            if not self._has_called:
                self._has_called = True
                self._metrics.time_to_first_tool_call.observe(self._clock() - self._started_s)
        elif isinstance(item.event, ToolCallEnd):
            self._metrics.num_tool_calls_by_outcome[item.event.outcome] += 1
            if item.event.index == 0:
                self._metrics.time_to_complete_tool_call.observe(self._clock() - self._started_s)
        elif isinstance(item.event, Finish):
            self._metrics.num_choices_by_reason[item.event.reason] += 1

    def violation(self, found: Violation) -> None:
        self._metrics.num_schema_violations[found.checked, found.keyword] += 1

    def done(self, usage: Usage) -> None:
        self._end(usage)
        self._metrics.turn_latency.observe(self._clock() - self._started_s)

    def failed(self, error: GatewayError, usage: Usage) -> None:
        self._end(usage)
        self._metrics.num_failures_by_code[error.code] += 1

    def _end(self, usage: Usage) -> None:
        self._metrics.num_live_turns -= 1
        # An upstream says at the end only how many there were.
        self._metrics.num_generation_tokens += max(usage.completion_tokens - self._num_tokens, 0)
        self._metrics.num_prompt_tokens += usage.prompt_tokens
        self._metrics.num_cached_prompt_tokens += usage.cached_tokens


class _GatewayCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from _turn_families(self._metrics)
        stats = self._metrics.engine_stats()
        if stats is not None:
            yield from _engine_families(stats)
        info = self._metrics.engine_info()
        if info is not None:
            yield _engine_labels(info)

    def describe(self) -> Iterable[Metric]:
        return ()


def _turn_families(metrics: Metrics) -> Iterator[Metric]:
    yield _gauge("live_turns", "Turns between their request and their last item.", metrics.num_live_turns)
    streams = metrics.num_open_streams
    yield _labelled_gauge("open_streams", "Connections that stream, by transport.", "transport", streams)
    yield _counter("prompt_tokens", "Prompt tokens of turns that ended.", metrics.num_prompt_tokens)
    yield _counter("cached_prompt_tokens", "Of these, found in the prefix cache.", metrics.num_cached_prompt_tokens)
    yield _counter("generation_tokens", "Tokens generated.", metrics.num_generation_tokens)
    reasons = metrics.num_choices_by_reason
    yield _labelled_counter("request_success", "Choices that ended, by reason.", "finished_reason", reasons)
    failures = metrics.num_failures_by_code
    yield _labelled_counter("request_failure", "Turns that failed, by error code.", "code", failures)
    outcomes = metrics.num_tool_calls_by_outcome
    yield _labelled_counter("tool_calls", "Tool calls that ended, by outcome.", "outcome", outcomes)
    off = CounterMetricFamily(
        "headrace_schema_violations", "Calls and answers off a keyword that is not enforced.", labels=("of", "keyword")
    )
    for labels, number in metrics.num_schema_violations.items():
        off.add_metric(labels, number)
    yield off
    responses = CounterMetricFamily("headrace_http_requests", "HTTP responses begun.", labels=("path", "status"))
    for labels, number in metrics.num_http_responses.items():
        responses.add_metric(labels, number)
    yield responses
    yield metrics.time_to_first_token.family("headrace_time_to_first_token_seconds", "From request to first token.")
    yield metrics.inter_token_latency.family("headrace_inter_token_latency_seconds", "From a token to its next.")
    first_call, whole_call = metrics.time_to_first_tool_call, metrics.time_to_complete_tool_call
    yield first_call.family("headrace_time_to_first_tool_call_seconds", "From request to a turn's first call's name.")
    yield whole_call.family("headrace_time_to_complete_tool_call_seconds", "From request to the end of that call.")
    yield metrics.turn_latency.family("headrace_e2e_request_latency_seconds", "From request to last token.")


def _engine_families(stats: EngineStats) -> Iterator[Metric]:
    usage = stats.num_blocks_in_use / stats.num_blocks if stats.num_blocks else 0.0
    yield _gauge("num_requests_running", "Turns in the engine's batch.", stats.num_running)
    yield _gauge("num_requests_waiting", "Turns that wait for the engine.", stats.num_waiting)
    yield _gauge("kv_cache_usage_perc", "Share of KV blocks that live turns hold, 0 to 1.", usage)
    yield _gauge("kv_blocks", "KV blocks in all.", stats.num_blocks)
    yield _gauge("kv_blocks_in_use", "KV blocks that live turns hold.", stats.num_blocks_in_use)
    yield _gauge("kv_blocks_cached", "KV blocks kept for reuse only.", stats.num_blocks_cached)
    yield _gauge("engine_last_step_seconds", "Duration of the latest step.", stats.last_step_s)
    yield _counter("engine_steps", "Steps since the engine started.", stats.num_steps)
    yield _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.num_prompt_tokens)
    yield _counter("prefix_cache_hits", "Of these, found.", stats.num_cached_prompt_tokens)
    yield _counter("engine_generation_tokens", "Tokens generated by the engine.", stats.num_generated_tokens)
    yield _counter(
        "num_forced_tokens", "Generated tokens that were known without a pass of their own.", stats.num_forced_tokens
    )
    yield _counter("num_guessed_tokens", "Tokens guessed from a turn's own history.", stats.num_guessed_tokens)
    yield _counter("num_right_guesses", "Of these, those that held.", stats.num_right_guesses)
    yield _counter("num_late_masks", "How often a row sat a step out, its mask not having come.", stats.num_late_masks)
    yield _counter(
        "num_redrawn_tokens", "Drawn without a mask, refused, and drawn again with it.", stats.num_redrawn_tokens
    )
    yield _counter("num_masks", "Masks computed for turns that are held to a grammar.", stats.num_masks)
    yield _counter("mask_seconds", "Time that computing masks took, beside the forward passes.", stats.mask_s)
    yield _counter("num_preemptions", "Turns set back for lack of KV blocks.", stats.num_preemptions)


def _engine_labels(info: EngineInfo) -> Metric:
    labels = {
        "architecture": info.architecture, "device": info.device, "dtype": info.dtype,
        "attention": info.attention_backend,
    }  # fmt: skip
    return InfoMetricFamily("headrace_engine", "What the engine runs.", value=labels)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"headrace_{name}", help_text, value=value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"headrace_{name}", help_text, value=value)


def _labelled_gauge(name: str, help_text: str, label: str, values: Counter[str]) -> Metric:
    family = GaugeMetricFamily(f"headrace_{name}", help_text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _labelled_counter(name: str, help_text: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"headrace_{name}", help_text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
