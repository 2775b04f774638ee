import { gait } from "gait";
import { tack } from "tack";

export const ready = (speed) => `${gait(speed)} with ${tack.join(" and ")}`;
