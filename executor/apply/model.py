"""The model of a replica: one token so that no user pays for the first one, and waking it from sleep."""

from __future__ import annotations

from connectors.engines.base import Engine
from executor.outcomes import Ending
from schemas import Model, OutcomeReason, TransientFault, WarmupCommand


class ModelApplier:
    """Applies Model commands: probe, load, wake."""

    async def apply(self, command: WarmupCommand, engine: Engine, timeout_s: float) -> Ending:
        """Does what the command asks on its replica. Asking again is harmless.

        Raises:
            TransientFault: the engine did not answer; asking again may help.
            RefusedCommand: the engine said no: an unknown model, or it cannot be woken by a call.
        """
        target = command.target
        assert isinstance(target, Model)
        sleeping = await engine.is_sleeping()
        request_id = f"probe-{command.command_id}"
        if command.action == "wake":
            if not sleeping:
                return Ending("resident", OutcomeReason.ALREADY_RESIDENT)
            await engine.wake(timeout_s=timeout_s)
            if await engine.is_sleeping():
                raise TransientFault("the engine still sleeps after it was woken")
        elif sleeping:
            return Ending("skipped", OutcomeReason.ENGINE_SLEEPING)
        elif command.action == "load":
            if target.model in (await engine.capabilities()).models:
                return Ending("resident", OutcomeReason.ALREADY_RESIDENT)
            # No engine behind this port takes another base model while it runs.
            told = "this engine serves the model that it was started with; start a replica with the other one"
            return Ending("rejected", OutcomeReason.UNSUPPORTED, error=told)
        await engine.probe(target.model, request_id=request_id, timeout_s=timeout_s)
        return Ending("applied", OutcomeReason.DONE)
