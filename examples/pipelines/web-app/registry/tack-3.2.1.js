export const tack = ["saddle", "bridle"];
