from dataclasses import replace

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import GatewayApp
from gateway.errors import EngineDown
from gateway.metrics import Histogram, Metrics
from gateway.pieces import TextPiece
from gateway.types import EngineStats, TurnEvent, TurnText, Usage
from stream_parser.events import Finish, ToolCallEnd, ToolCallStart
from tests.testkit.gateway_kit import FakeEngine, engine_info, gateway_config, model_backend, scripted


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as a scraper reads them."""
    text = generate_latest(metrics.registry).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_latencies_go_into_their_buckets():
    clock = Clock()
    metrics = Metrics(clock, lambda: None)
    meter = metrics.meter()
    for gap_s in (0.2, 0.03, 0.03):
        clock.now_s += gap_s
        meter.piece(TextPiece(0, "x"))
    meter.done(Usage(5, 3, 2))
    found = samples(metrics)
    assert found["headrace_time_to_first_token_seconds_count"] == 1
    assert found["headrace_time_to_first_token_seconds_bucket{le=0.1}"] == 0
    assert found["headrace_time_to_first_token_seconds_bucket{le=0.25}"] == 1
    assert found["headrace_inter_token_latency_seconds_count"] == 2
    assert found["headrace_inter_token_latency_seconds_bucket{le=0.025}"] == 0
    assert found["headrace_inter_token_latency_seconds_bucket{le=0.05}"] == 2
    assert abs(found["headrace_e2e_request_latency_seconds_sum"] - 0.26) < 1e-9
    assert found["headrace_prompt_tokens_total"] == 5
    assert found["headrace_cached_prompt_tokens_total"] == 2


def test_a_piece_of_several_tokens_counts_its_latency_per_token():
    clock = Clock()
    metrics = Metrics(clock, lambda: None)
    meter = metrics.meter()
    meter.piece(TextPiece(0, "x"))
    clock.now_s += 0.08
    meter.piece(TextPiece(0, "abcd", num_tokens=4))
    assert abs(samples(metrics)["headrace_inter_token_latency_seconds_sum"] - 0.02) < 1e-9
    assert metrics.num_generation_tokens == 5


def test_choices_are_timed_apart_and_the_first_token_once():
    clock = Clock()
    metrics = Metrics(clock, lambda: None)
    meter = metrics.meter()
    for choice in (0, 1, 0, 1):
        clock.now_s += 0.01
        meter.piece(TextPiece(choice, "x"))
    found = samples(metrics)
    assert found["headrace_time_to_first_token_seconds_count"] == 1
    assert abs(found["headrace_inter_token_latency_seconds_sum"] - 0.04) < 1e-9


def test_the_first_call_of_a_turn_is_timed_to_its_name_and_to_its_end():
    clock = Clock()
    metrics = Metrics(clock, lambda: None)
    meter = metrics.meter()
    for gap_s, event in (
        (0.2, ToolCallStart(0, "call_0", "f")), (0.3, ToolCallEnd(0, "{}", "ok", "")),
        (1.0, ToolCallStart(1, "call_1", "f")), (1.0, ToolCallEnd(1, "{}", "ok", "")),
    ):  # fmt: skip
        clock.now_s += gap_s
        meter.item(TurnEvent(0, event))
    found = samples(metrics)
    assert found["headrace_time_to_first_tool_call_seconds_count"] == 1
    assert abs(found["headrace_time_to_first_tool_call_seconds_sum"] - 0.2) < 1e-9
    assert found["headrace_time_to_complete_tool_call_seconds_count"] == 1
    assert abs(found["headrace_time_to_complete_tool_call_seconds_sum"] - 0.5) < 1e-9


def test_ends_calls_failures_and_streams_are_counted_by_kind():
    metrics = Metrics(Clock(), lambda: None)
    meter = metrics.meter()
    assert samples(metrics)["headrace_live_turns"] == 1
    meter.item(TurnEvent(0, ToolCallEnd(0, "{}", "repaired", "x")))
    meter.item(TurnEvent(0, Finish("tool_calls")))
    meter.item(TurnText(0, "x", "length"))
    meter.item(TurnText(0, "x"))
    meter.failed(EngineDown("gone"), Usage(0, 0))
    metrics.count_response("/v1/models", 200)
    with metrics.open_stream("sse"):
        found = samples(metrics)
        assert found["headrace_open_streams{transport=sse}"] == 1
    assert samples(metrics)["headrace_open_streams{transport=sse}"] == 0
    assert found["headrace_live_turns"] == 0
    assert found["headrace_tool_calls_total{outcome=repaired}"] == 1
    assert found["headrace_request_success_total{finished_reason=tool_calls}"] == 1
    assert found["headrace_request_success_total{finished_reason=length}"] == 1
    assert found["headrace_request_failure_total{code=engine_unavailable}"] == 1
    assert found["headrace_http_requests_total{path=/v1/models,status=200}"] == 1


def test_the_engines_snapshot_is_shown_as_it_is():
    stats = EngineStats(num_running=3, num_waiting=2, num_blocks=200, num_blocks_in_use=50, num_cached_prompt_tokens=7)
    found = samples(Metrics(Clock(), lambda: stats))
    assert found["headrace_num_requests_running"] == 3
    assert found["headrace_num_requests_waiting"] == 2
    assert found["headrace_kv_blocks"] == 200
    assert found["headrace_kv_blocks_in_use"] == 50
    assert found["headrace_kv_cache_usage_perc"] == 0.25
    assert found["headrace_prefix_cache_hits_total"] == 7


def test_what_the_engine_runs_is_told_once_it_is_known():
    info = replace(engine_info(), device="cuda", dtype="bf16", attention_backend="triton decode, flash-attn-4 prefill")
    labels = "architecture=TestForCausalLM,attention=triton decode, flash-attn-4 prefill,device=cuda,dtype=bf16"
    assert samples(Metrics(Clock(), EngineStats, lambda: info))[f"headrace_engine_info{{{labels}}}"] == 1
    assert not any("engine_info" in name for name in samples(Metrics(Clock(), EngineStats, lambda: None)))


def test_an_app_tells_what_its_backends_engine_runs():
    told = samples(GatewayApp(model_backend(FakeEngine()), gateway_config()).metrics)
    assert any(name.startswith("headrace_engine_info{architecture=TestForCausalLM") for name in told)
    told = samples(GatewayApp(scripted("ok"), gateway_config()).metrics)
    assert not any("engine_info" in name for name in told)


def test_without_an_engine_there_are_no_engine_metrics_and_no_division_by_zero():
    assert "headrace_kv_blocks" not in samples(Metrics(Clock(), lambda: None))
    assert samples(Metrics(Clock(), EngineStats))["headrace_kv_cache_usage_perc"] == 0


def test_a_value_on_a_bound_belongs_to_its_bucket():
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    family = histogram.family("h", "help")
    assert [sample.value for sample in family.samples if sample.name == "h_bucket"] == [1, 3, 4]
