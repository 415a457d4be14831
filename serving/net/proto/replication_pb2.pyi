from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaRequest(_message.Message):
    __slots__ = ("datastore",)
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    def __init__(self, datastore: _Optional[str] = ...) -> None: ...

class LeadRequest(_message.Message):
    __slots__ = ("datastore", "accept_loss")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    accept_loss: bool
    def __init__(self, datastore: _Optional[str] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class LeadReply(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: str
    def __init__(self, lost: _Optional[str] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("id", "run", "epoch", "leads", "in_sync", "compared", "position", "digest", "write_quorum", "followers")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    run: str
    epoch: int
    leads: bool
    in_sync: bool
    compared: bool
    position: int
    digest: int
    write_quorum: int
    followers: int
    def __init__(self, id: _Optional[str] = ..., run: _Optional[str] = ..., epoch: _Optional[int] = ..., leads: _Optional[bool] = ..., in_sync: _Optional[bool] = ..., compared: _Optional[bool] = ..., position: _Optional[int] = ..., digest: _Optional[int] = ..., write_quorum: _Optional[int] = ..., followers: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("datastore", "epoch", "replica", "held", "more", "position")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    epoch: int
    replica: str
    held: bytes
    more: bool
    position: int
    def __init__(self, datastore: _Optional[str] = ..., epoch: _Optional[int] = ..., replica: _Optional[str] = ..., held: _Optional[bytes] = ..., more: _Optional[bool] = ..., position: _Optional[int] = ...) -> None: ...

class FollowReply(_message.Message):
    __slots__ = ("identity", "epoch", "refill", "records", "more", "position", "digest", "time")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REFILL_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    identity: StoreIdentity
    epoch: int
    refill: bool
    records: bytes
    more: bool
    position: int
    digest: int
    time: int
    def __init__(self, identity: _Optional[_Union[StoreIdentity, _Mapping]] = ..., epoch: _Optional[int] = ..., refill: _Optional[bool] = ..., records: _Optional[bytes] = ..., more: _Optional[bool] = ..., position: _Optional[int] = ..., digest: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class StoreIdentity(_message.Message):
    __slots__ = ("vocab_size", "order_depth", "tokenizer", "group_secret")
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    ORDER_DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    GROUP_SECRET_FIELD_NUMBER: _ClassVar[int]
    vocab_size: int
    order_depth: int
    tokenizer: str
    group_secret: str
    def __init__(self, vocab_size: _Optional[int] = ..., order_depth: _Optional[int] = ..., tokenizer: _Optional[str] = ..., group_secret: _Optional[str] = ...) -> None: ...
