from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DatastoreChoice(_message.Message):
    __slots__ = ("name", "weight", "groups")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DraftRequest(_message.Message):
    __slots__ = ("datastores", "max_match", "min_match", "max_depth", "contexts", "lengths", "max_nodes", "groups", "scope", "least_counts")
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCH_FIELD_NUMBER: _ClassVar[int]
    MIN_MATCH_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LEAST_COUNTS_FIELD_NUMBER: _ClassVar[int]
    datastores: _containers.RepeatedCompositeFieldContainer[DatastoreChoice]
    max_match: int
    min_match: int
    max_depth: int
    contexts: bytes
    lengths: bytes
    max_nodes: bytes
    groups: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    least_counts: bytes
    def __init__(self, datastores: _Optional[_Iterable[_Union[DatastoreChoice, _Mapping]]] = ..., max_match: _Optional[int] = ..., min_match: _Optional[int] = ..., max_depth: _Optional[int] = ..., contexts: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., max_nodes: _Optional[bytes] = ..., groups: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ..., least_counts: _Optional[bytes] = ...) -> None: ...

class DraftReply(_message.Message):
    __slots__ = ("tokens", "parents", "scores", "counts", "sizes", "match_lengths", "match_counts")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    MATCH_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    MATCH_COUNTS_FIELD_NUMBER: _ClassVar[int]
    tokens: bytes
    parents: bytes
    scores: bytes
    counts: bytes
    sizes: bytes
    match_lengths: bytes
    match_counts: bytes
    def __init__(self, tokens: _Optional[bytes] = ..., parents: _Optional[bytes] = ..., scores: _Optional[bytes] = ..., counts: _Optional[bytes] = ..., sizes: _Optional[bytes] = ..., match_lengths: _Optional[bytes] = ..., match_counts: _Optional[bytes] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("datastores", "max_match", "min_match", "contexts", "lengths", "groups", "scope")
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCH_FIELD_NUMBER: _ClassVar[int]
    MIN_MATCH_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    datastores: _containers.RepeatedCompositeFieldContainer[DatastoreChoice]
    max_match: int
    min_match: int
    contexts: bytes
    lengths: bytes
    groups: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    def __init__(self, datastores: _Optional[_Iterable[_Union[DatastoreChoice, _Mapping]]] = ..., max_match: _Optional[int] = ..., min_match: _Optional[int] = ..., contexts: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., groups: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ...) -> None: ...

class LookupReply(_message.Message):
    __slots__ = ("match_lengths", "match_counts")
    MATCH_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    MATCH_COUNTS_FIELD_NUMBER: _ClassVar[int]
    match_lengths: bytes
    match_counts: bytes
    def __init__(self, match_lengths: _Optional[bytes] = ..., match_counts: _Optional[bytes] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ("datastores", "contexts", "lengths", "tokens", "parents", "sizes")
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    datastores: _containers.RepeatedCompositeFieldContainer[DatastoreChoice]
    contexts: bytes
    lengths: bytes
    tokens: bytes
    parents: bytes
    sizes: bytes
    def __init__(self, datastores: _Optional[_Iterable[_Union[DatastoreChoice, _Mapping]]] = ..., contexts: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., parents: _Optional[bytes] = ..., sizes: _Optional[bytes] = ...) -> None: ...

class CountReply(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: bytes
    def __init__(self, counts: _Optional[bytes] = ...) -> None: ...

class OccurrencesRequest(_message.Message):
    __slots__ = ("datastores", "pattern", "text", "limit", "context", "before", "group", "scope")
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    datastores: _containers.RepeatedCompositeFieldContainer[DatastoreChoice]
    pattern: bytes
    text: str
    limit: int
    context: int
    before: int
    group: str
    scope: str
    def __init__(self, datastores: _Optional[_Iterable[_Union[DatastoreChoice, _Mapping]]] = ..., pattern: _Optional[bytes] = ..., text: _Optional[str] = ..., limit: _Optional[int] = ..., context: _Optional[int] = ..., before: _Optional[int] = ..., group: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class OccurrencesReply(_message.Message):
    __slots__ = ("occurrences",)
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    occurrences: _containers.RepeatedCompositeFieldContainer[Occurrence]
    def __init__(self, occurrences: _Optional[_Iterable[_Union[Occurrence, _Mapping]]] = ...) -> None: ...

class Occurrence(_message.Message):
    __slots__ = ("datastore", "segment", "document", "offset", "id", "metadata_json", "tokens", "before")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    segment: str
    document: int
    offset: int
    id: str
    metadata_json: str
    tokens: bytes
    before: bytes
    def __init__(self, datastore: _Optional[str] = ..., segment: _Optional[str] = ..., document: _Optional[int] = ..., offset: _Optional[int] = ..., id: _Optional[str] = ..., metadata_json: _Optional[str] = ..., tokens: _Optional[bytes] = ..., before: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("datastore", "tokens", "lengths", "ids", "metadata", "groups", "replace", "key")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    tokens: bytes
    lengths: bytes
    ids: _containers.RepeatedScalarFieldContainer[str]
    metadata: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    replace: bool
    key: str
    def __init__(self, datastore: _Optional[str] = ..., tokens: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., ids: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., replace: _Optional[bool] = ..., key: _Optional[str] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("sequence", "documents", "tokens", "replaced", "durable")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    documents: int
    tokens: int
    replaced: int
    durable: bool
    def __init__(self, sequence: _Optional[int] = ..., documents: _Optional[int] = ..., tokens: _Optional[int] = ..., replaced: _Optional[int] = ..., durable: _Optional[bool] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("datastore", "id")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    id: str
    def __init__(self, datastore: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetReply(_message.Message):
    __slots__ = ("documents", "tokens", "sequence")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    documents: int
    tokens: int
    sequence: int
    def __init__(self, documents: _Optional[int] = ..., tokens: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("datastore", "ids", "where", "group")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    where: _containers.RepeatedScalarFieldContainer[str]
    group: str
    def __init__(self, datastore: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., where: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteReply(_message.Message):
    __slots__ = ("documents", "tokens", "generation", "unknown_ids")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_IDS_FIELD_NUMBER: _ClassVar[int]
    documents: int
    tokens: int
    generation: int
    unknown_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, documents: _Optional[int] = ..., tokens: _Optional[int] = ..., generation: _Optional[int] = ..., unknown_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ("datastore",)
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    def __init__(self, datastore: _Optional[str] = ...) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("datastore", "group")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    group: str
    def __init__(self, datastore: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("stats_json",)
    STATS_JSON_FIELD_NUMBER: _ClassVar[int]
    stats_json: str
    def __init__(self, stats_json: _Optional[str] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ("datastores",)
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    datastores: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, datastores: _Optional[_Iterable[str]] = ...) -> None: ...

class GetInfoReply(_message.Message):
    __slots__ = ("server_version", "datastores")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DATASTORES_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    datastores: _containers.RepeatedCompositeFieldContainer[DatastoreInfo]
    def __init__(self, server_version: _Optional[str] = ..., datastores: _Optional[_Iterable[_Union[DatastoreInfo, _Mapping]]] = ...) -> None: ...

class DatastoreInfo(_message.Message):
    __slots__ = ("name", "vocab_size", "order_depth", "generation", "tokens", "info_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    ORDER_DEPTH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    vocab_size: int
    order_depth: int
    generation: int
    tokens: int
    info_json: str
    def __init__(self, name: _Optional[str] = ..., vocab_size: _Optional[int] = ..., order_depth: _Optional[int] = ..., generation: _Optional[int] = ..., tokens: _Optional[int] = ..., info_json: _Optional[str] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ("datastore",)
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    def __init__(self, datastore: _Optional[str] = ...) -> None: ...

class GetTokenizerReply(_message.Message):
    __slots__ = ("tokenizer_zstd",)
    TOKENIZER_ZSTD_FIELD_NUMBER: _ClassVar[int]
    tokenizer_zstd: bytes
    def __init__(self, tokenizer_zstd: _Optional[bytes] = ...) -> None: ...
