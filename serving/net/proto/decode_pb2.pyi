from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("text", "chat", "token_ids", "sampling", "drafter", "max_nodes", "options")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    text: str
    chat: Chat
    token_ids: bytes
    sampling: SamplingSettings
    drafter: str
    max_nodes: int
    options: DraftOptions
    def __init__(self, text: _Optional[str] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., token_ids: _Optional[bytes] = ..., sampling: _Optional[_Union[SamplingSettings, _Mapping]] = ..., drafter: _Optional[str] = ..., max_nodes: _Optional[int] = ..., options: _Optional[_Union[DraftOptions, _Mapping]] = ...) -> None: ...

class DraftOptions(_message.Message):
    __slots__ = ("prediction_text", "prediction_token_ids", "datastores", "remember", "group")
    PREDICTION_TEXT_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    prediction_text: str
    prediction_token_ids: bytes
    datastores: DatastoreNames
    remember: bool
    group: str
    def __init__(self, prediction_text: _Optional[str] = ..., prediction_token_ids: _Optional[bytes] = ..., datastores: _Optional[_Union[DatastoreNames, _Mapping]] = ..., remember: _Optional[bool] = ..., group: _Optional[str] = ...) -> None: ...

class DatastoreNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class SamplingSettings(_message.Message):
    __slots__ = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words", "seed", "stop", "ignore_eos", "logprobs", "verification", "epsilon", "delta", "grammar", "logit_bias", "stop_token_ids", "min_tokens", "include_stop", "skip_special_tokens")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STOP_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    bad_words: _containers.RepeatedScalarFieldContainer[bytes]
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    logprobs: int
    verification: str
    epsilon: float
    delta: float
    grammar: Grammar
    logit_bias: _containers.ScalarMap[int, float]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    min_tokens: int
    include_stop: bool
    skip_special_tokens: bool
    def __init__(self, max_new_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., bad_words: _Optional[_Iterable[bytes]] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., logprobs: _Optional[int] = ..., verification: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., grammar: _Optional[_Union[Grammar, _Mapping]] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., min_tokens: _Optional[int] = ..., include_stop: _Optional[bool] = ..., skip_special_tokens: _Optional[bool] = ...) -> None: ...

class Grammar(_message.Message):
    __slots__ = ("kind", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    text: str
    def __init__(self, kind: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class GenerateReply(_message.Message):
    __slots__ = ("tokens", "sources", "pieces", "log_probabilities", "finish", "stats")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    tokens: bytes
    sources: bytes
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    log_probabilities: _containers.RepeatedCompositeFieldContainer[LogProbability]
    finish: str
    stats: GenerationStats
    def __init__(self, tokens: _Optional[bytes] = ..., sources: _Optional[bytes] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., log_probabilities: _Optional[_Iterable[_Union[LogProbability, _Mapping]]] = ..., finish: _Optional[str] = ..., stats: _Optional[_Union[GenerationStats, _Mapping]] = ...) -> None: ...

class LogProbability(_message.Message):
    __slots__ = ("value", "alternatives", "values")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    value: float
    alternatives: bytes
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, value: _Optional[float] = ..., alternatives: _Optional[bytes] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("text", "source")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    text: str
    source: int
    def __init__(self, text: _Optional[str] = ..., source: _Optional[int] = ...) -> None: ...

class GenerationStats(_message.Message):
    __slots__ = ("prompt_tokens", "tokens", "steps", "mean_generated_length", "draft_calls", "draft_failures", "seconds", "drafted", "accepted_prediction_tokens", "rejected_prediction_tokens", "drafted_steps", "cached_tokens")
    class DraftFailuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MEAN_GENERATED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DRAFT_CALLS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FAILURES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_PREDICTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_PREDICTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_STEPS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    tokens: int
    steps: int
    mean_generated_length: float
    draft_calls: int
    draft_failures: _containers.ScalarMap[str, int]
    seconds: _containers.ScalarMap[str, float]
    drafted: _containers.RepeatedCompositeFieldContainer[DraftCount]
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    drafted_steps: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., tokens: _Optional[int] = ..., steps: _Optional[int] = ..., mean_generated_length: _Optional[float] = ..., draft_calls: _Optional[int] = ..., draft_failures: _Optional[_Mapping[str, int]] = ..., seconds: _Optional[_Mapping[str, float]] = ..., drafted: _Optional[_Iterable[_Union[DraftCount, _Mapping]]] = ..., accepted_prediction_tokens: _Optional[int] = ..., rejected_prediction_tokens: _Optional[int] = ..., drafted_steps: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class DraftCount(_message.Message):
    __slots__ = ("source", "source_bits", "depth", "proposed", "verified", "accepted", "earned")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BITS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    EARNED_FIELD_NUMBER: _ClassVar[int]
    source: str
    source_bits: int
    depth: int
    proposed: int
    verified: int
    accepted: int
    earned: int
    def __init__(self, source: _Optional[str] = ..., source_bits: _Optional[int] = ..., depth: _Optional[int] = ..., proposed: _Optional[int] = ..., verified: _Optional[int] = ..., accepted: _Optional[int] = ..., earned: _Optional[int] = ...) -> None: ...

class GetWorkerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWorkerInfoReply(_message.Message):
    __slots__ = ("server_version", "model", "vocab_size", "context_length", "has_chat_template", "drafters", "default_drafter", "slots", "capacity", "queue", "max_nodes", "cache_bytes", "running", "waiting", "stats_json", "datastores")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_DRAFTER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STATS_JSON_FIELD_NUMBER: _ClassVar[int]
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    model: str
    vocab_size: int
    context_length: int
    has_chat_template: bool
    drafters: _containers.RepeatedScalarFieldContainer[str]
    default_drafter: str
    slots: int
    capacity: int
    queue: int
    max_nodes: int
    cache_bytes: int
    running: int
    waiting: int
    stats_json: str
    datastores: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, server_version: _Optional[str] = ..., model: _Optional[str] = ..., vocab_size: _Optional[int] = ..., context_length: _Optional[int] = ..., has_chat_template: _Optional[bool] = ..., drafters: _Optional[_Iterable[str]] = ..., default_drafter: _Optional[str] = ..., slots: _Optional[int] = ..., capacity: _Optional[int] = ..., queue: _Optional[int] = ..., max_nodes: _Optional[int] = ..., cache_bytes: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., stats_json: _Optional[str] = ..., datastores: _Optional[_Iterable[str]] = ...) -> None: ...
